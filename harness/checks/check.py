"""A check: an id, a one-sentence claim, and a pure judgement of what subjects observed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.checks.finding import NOT_RUN, Outcome, unknown
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Observation

Variants = Callable[[MetadataScenario], Sequence[MetadataScenario]]
Judge = Callable[[Scenario, Sequence[Observation]], Outcome]


class MissingField(Exception):
    """The subject did not report what the check needs: a field, a row, a round."""


class NothingToJudge(Exception):
    """There is nothing here that the check could look at, and that is as it should be."""


def no_variants(scenario: MetadataScenario) -> Sequence[MetadataScenario]:
    """Most checks look at the scenario alone."""
    return ()


class Check(NamedTuple):
    """One check.

    `applies` says for which scenarios it can speak; `variants` names further scenarios that it needs observed beside
    the first (the same batch in another order, say); `judge` gets the observations in that order, the first one first.
    A check that `needs` a capability is not part of a run on an sglang without it.
    """

    id: str
    group: str
    claim: str
    applies: Callable[[Scenario], bool]
    judge: Judge
    variants: Variants = no_variants
    needs: str = ""

    def outcome(self, scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        """Judge; an observation that is none or lacks something, and a failure of the judge itself, are UNKNOWN."""
        for observation in observations:
            if observation.fault is not None:
                return unknown(f"{observation.fault.cause}: {observation.fault.reason}")
        try:
            return self.judge(scenario, observations)
        except NothingToJudge:
            return NOT_RUN
        except MissingField as error:
            return unknown(str(error))
        except Exception as error:
            return unknown(f"the check {self.id} failed: {type(error).__name__}: {error}")
