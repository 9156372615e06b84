"""How often a subject was lost: whether a loss is its scenario's doing, and when a run has lost enough."""

import math

import msgspec

from harness.scenario import Scenario
from harness.scenario.observation import Fault

#: Crashes that any run bears, and one more for each `ANSWERS_PER_CRASH` scenarios that were answered. A new worker is
#: there in a tenth of a second, and one step in ten that crashes by chance stays well below.
MAX_CRASHES = 300
ANSWERS_PER_CRASH = 4
#: Hangs and lost templates that a run bears: each costs half a minute of waiting, or a new import of sglang.
MAX_COSTLY = 10
#: In how many scenarios that crashed by chance alone one may be blamed for it: one in 10 to the power of this.
CERTAINTY = 8
#: What is taken to crash by chance before anything is known: one step in so many.
UNKNOWN_CHANCE = 100
FEWEST_TRIES = 3
#: Tries where each costs a time limit or a new template.
COSTLY_TRIES = 2


class LostScenario(msgspec.Struct, frozen=True):
    """A scenario that costs its subject whenever it is asked, and the fault that it is."""

    scenario: Scenario
    fault: Fault


class Losses(msgspec.Struct):
    """What a supervisor counts. A loss is a frame without an answer, since the process that had it is no more.

    `answered` are scenarios. `crashes` are workers that ended, `costly` are hangs and templates that were lost.
    `unreproduced` are the losses of either kind whose scenarios were answered when they were asked again, and
    `last` says what the last of these was. A device loss is none: the worker has answered.
    """

    answered: int = 0
    crashes: int = 0
    costly: int = 0
    unreproduced: int = 0
    last: str = ""

    def add(self, fault: Fault) -> None:
        """Count one loss."""
        if fault.cause == "crash":
            self.crashes += 1
        else:
            self.costly += 1

    def excuse(self, fault: Fault, count: int = 1) -> None:
        """Count `count` losses as by chance, the last of them `fault`."""
        self.unreproduced += count
        self.last = f"{fault.cause}: {fault.reason}"

    def tries(self, fault: Fault) -> int:
        """How many losses in a row it takes until `fault` is the scenario's doing and not chance.

        The more steps have crashed by chance in this run, the more: a tenth of them makes it eight.
        """
        if fault.cause != "crash":
            return COSTLY_TRIES
        chance = (self.unreproduced + 1) / (self.answered + UNKNOWN_CHANCE)
        return max(FEWEST_TRIES, math.ceil(CERTAINTY / -math.log10(min(chance, 0.5))))

    @property
    def enough(self) -> bool:
        """Whether the run has lost more than it can bear."""
        return self.costly > MAX_COSTLY or self.crashes > MAX_CRASHES + self.answered // ANSWERS_PER_CRASH
