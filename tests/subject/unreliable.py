"""The real subject, made to abort at random: `python unreliable.py RATE SEED COMMAND…`.

COMMAND is the command line of a subject, which is what `harness check --through` puts behind this one. Each scenario is
a step, and of the steps a share of RATE ends with an abort of the worker in the middle of its frame.
"""

import mmap
import os
import random
import resource
import struct
import sys
from collections.abc import Callable

from msgspec.structs import replace

from harness.subject import __main__ as subject
from harness.subject.frames import Observe, Observed
from harness.subject.template import Driver, Template

COUNT = struct.Struct("<Q")


class Chance:
    """Whether a step aborts, the same for each seed; the steps are counted across all workers of a template."""

    def __init__(self, rate: float, seed: str) -> None:
        self.rate = rate
        self.seed = seed
        self.steps = mmap.mmap(-1, COUNT.size)

    def strikes(self) -> bool:
        """Take a step, and tell whether it is one that aborts."""
        (step,) = COUNT.unpack_from(self.steps)
        COUNT.pack_into(self.steps, 0, step + 1)
        return random.Random(f"{self.seed} {step}").random() < self.rate


def aborting(driver: Driver, chance: Chance) -> Driver:
    """`driver`, which does the work of a frame up to a step that aborts."""

    def observe(message: Observe) -> Observed:
        for number, _ in enumerate(message.scenarios):
            if chance.strikes():
                if number:
                    driver(replace(message, scenarios=message.scenarios[:number]))
                os.abort()
        return driver(message)

    return observe


def main() -> None:
    """Serve as `python -m harness.subject PATH DEVICE` does, with a template whose workers abort."""
    chance = Chance(float(sys.argv[1]), sys.argv[2])

    class Unreliable(Template):
        def __init__(self, prepare: Callable[[str], Callable[[], Driver]]) -> None:
            def prepared(stage: str) -> Callable[[], Driver]:
                make_driver = prepare(stage)
                return lambda: aborting(make_driver(), chance)

            super().__init__(prepared)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    subject.Template = Unreliable  # type: ignore[misc]
    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()


if __name__ == "__main__":
    main()
