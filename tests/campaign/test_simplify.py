"""What a finding of a session does not need is left out of its server."""

import pytest
from msgspec.structs import replace

from harness.campaign.simplify import simplified
from harness.checks.finding import Finding
from harness.scenario import GateScenario, Scenario, SessionScenario
from harness.scenario.session import Visit

OPTIONS = tuple((f"option_{number}", number) for number in range(5))
SWITCHES = (("SWITCH", "1"),)
SESSION = SessionScenario("DFLASH", (Visit(5, 3),), options=OPTIONS, environment=SWITCHES)


def found(scenario: Scenario, fingerprint: str = "one") -> Finding:
    return Finding("session-runs", fingerprint, "DFLASH", "eager", "session", "wrong", "matters", scenario)


class Judge:
    """Judges as a trial does: the finding shows where the server has all of `needed`."""

    def __init__(self, *needed: str, otherwise: str = "") -> None:
        self.needed = set(needed)
        self.otherwise = otherwise
        self.servers = 0

    def judge(self, scenario: SessionScenario, only: str) -> list[Finding]:
        assert only == "session-runs"
        self.servers += 1
        names = {name for name, _ in (*scenario.options, *scenario.environment)}
        if self.needed <= names:
            return [found(scenario)]
        return [found(scenario, self.otherwise)] if self.otherwise else []


@pytest.mark.parametrize("needed", [(), ("option_3",), ("option_0", "SWITCH"), ("option_1", "option_4")])
def test_only_what_the_finding_needs_is_left(needed: tuple[str, ...]) -> None:
    judge = Judge(*needed)

    left = simplified(judge, found(SESSION)).scenario  # type: ignore[arg-type]

    assert isinstance(left, SessionScenario)
    assert {name for name, _ in (*left.options, *left.environment)} == set(needed)


def test_a_finding_that_needs_nothing_costs_one_server() -> None:
    judge = Judge()

    simplified(judge, found(SESSION))  # type: ignore[arg-type]

    assert judge.servers == 1


def test_another_finding_is_not_taken_for_this_one() -> None:
    judge = Judge("option_3", otherwise="another")

    left = simplified(judge, found(SESSION))  # type: ignore[arg-type]

    assert left.fingerprint == "one"
    assert left.scenario.options == (OPTIONS[3],)  # type: ignore[union-attr]


def test_a_finding_without_a_server_stays_as_it_is() -> None:
    finding = found(GateScenario("npu"))

    assert simplified(Judge(), finding) is finding  # type: ignore[arg-type]


def test_what_its_workers_show_alone_needs_no_engine() -> None:
    left = simplified(Judge("option_3"), found(replace(SESSION, subject="engine")))  # type: ignore[arg-type]

    assert left.scenario == replace(SESSION, options=(OPTIONS[3],), environment=())


def test_what_its_workers_do_not_show_keeps_its_engine() -> None:
    class Engine(Judge):
        def judge(self, scenario: SessionScenario, only: str) -> list[Finding]:
            return super().judge(scenario, only) if scenario.subject == "engine" else []

    left = simplified(Engine("option_3"), found(replace(SESSION, subject="engine")))  # type: ignore[arg-type]

    assert left.scenario == replace(SESSION, subject="engine", options=(OPTIONS[3],), environment=())
