"""A subject over a made-up sglang of one file, which it really runs: `python marked_subject.py … PATH DEVICE`.

The file's `host_length(prefix, block)` is asked; where it has not added the block once, the subject reports it twice.
With `SHARE` in the file, only that share of the observations is wrong. A file that cannot be run is no subject.
"""

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from types import ModuleType
from typing import Any

from harness.scenario import MetadataScenario
from harness.scenario.observation import Observation
from harness.subject.frames import Observe, Observed, SubjectInfo
from harness.subject.source import ASCEND_BACKEND
from tests.campaign.planted import block_added_twice
from tests.ideal import observation

COMMAND = f"{sys.executable} {Path(__file__).resolve()}"

#: The file of this process, once it is read.
backend: dict[str, Any] = {}


def prepare(path: str, device: str) -> SubjectInfo:
    """Read the file in the place of importing sglang."""
    file = Path(path, ASCEND_BACKEND)
    exec(compile(file.read_text(), file, "exec"), backend)
    return SubjectInfo("ascend", "", device, {}, ("DFLASH",))


class Driver:
    """Observes what the file says."""

    def __init__(self, info: SubjectInfo) -> None:
        self.chance = random.Random(7)

    def observe(self, message: Observe) -> Observed:
        """Right observations, or the block added once more where the file does."""
        return Observed(tuple(self._observe(one) for one in message.scenarios))

    def _observe(self, scenario: Any) -> Observation:
        assert isinstance(scenario, MetadataScenario)
        wrong = backend["host_length"](5, 16) != 21 and self.chance.random() < backend.get("SHARE", 1.0)
        return block_added_twice(scenario, observation(scenario)) if wrong else observation(scenario)


def main() -> None:
    """Serve as `python -m harness.subject` does, with this module in the place of sglang's driver."""
    driver = ModuleType("harness.subject.ascend.driver")
    driver.__dict__.update(Driver=Driver, prepare=prepare)
    sys.modules[driver.__name__] = driver

    from harness.subject import __main__ as subject

    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()


if __name__ == "__main__":
    main()
