"""A check: an id, a one-sentence claim, and a pure judgement of what subjects observed."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from harness.checks.finding import Outcome, Verdict, unknown
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Observation

Variants = Callable[[MetadataScenario], Sequence[MetadataScenario]]
Judge = Callable[[Scenario, Sequence[Observation]], Outcome]


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
        """Judge, with every observation that is no observation, and every exception in the judge, as UNKNOWN."""
        for observation in observations:
            if observation.fault is not None:
                return unknown(f"{observation.fault.cause}: {observation.fault.reason}")
        try:
            return self.judge(scenario, observations)
        except Exception as error:
            return Outcome(Verdict.UNKNOWN, reason=f"the check {self.id} failed: {type(error).__name__}: {error}")
