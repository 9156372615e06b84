"""Ideal sides: they answer from the reference, and may be told to be wrong."""

from collections.abc import Callable, Sequence
from functools import cache

from harness.scenario import MetadataScenario, Scenario
from harness.scenario.attention import attention_scenarios
from harness.scenario.observation import Observation
from harness.subject.frames import SubjectInfo
from tests.ideal import CAPABILITIES, CELLS, drawn, observation

Plant = Callable[[int, Observation], Observation]

INFO = SubjectInfo("ascend", "0.0.1", "emulated", {"torch": "2.0"}, CAPABILITIES)

#: A few scenarios of every executor, of plain and of window attention.
SCENARIOS: tuple[MetadataScenario, ...] = tuple(
    dict.fromkeys(
        scenario
        for cell in CELLS
        if cell.target in ("mha", "swa")
        and (cell.algorithms[0], cell.mode) in (("NONE", "decode"), ("DFLASH", "target_verify"))
        for scenario in drawn(cell, 3, attention_scenarios)[1:3]
    )
)


#: What is right for a scenario, worked out once.
right = cache(observation)


class IdealSide:
    """A side that is right, but where `plant` changes the observation of the scenario with that number."""

    def __init__(self, plant: Plant = lambda number, observed: observed, info: SubjectInfo = INFO) -> None:
        self.info = info
        self.plant = plant
        self.asked = 0

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        self.asked += len(scenarios)
        return [self.plant(SCENARIOS.index(one), right(one)) for one in scenarios]  # type: ignore[arg-type]
