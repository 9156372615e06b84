"""Walking an observation round by round, for checks that judge each round on its own."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from harness.checks.finding import NOT_RUN, PASSED, Finding, Outcome, failed, unknown
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Observation, Seen

JudgeRound = Callable[[MetadataScenario, int, tuple[Request, ...], Seen], Finding | None]


class MissingField(Exception):
    """The subject did not report a field that the check needs."""


class NothingToJudge(Exception):
    """The release has no code for what the check looks at, and says so."""


def field(seen: Seen, name: str) -> npt.NDArray[np.int32]:
    """The values of a metadata field; raises MissingField where the subject did not report it."""
    if name not in seen.fields:
        raise MissingField(f"the subject reported no {name}")
    return seen.fields[name].values


def built_rounds(
    scenario: MetadataScenario, observation: Observation
) -> Iterator[tuple[int, tuple[Request, ...], Seen]]:
    """The first build of each round that raised nothing: its number, its batch and what was seen."""
    if len(observation.seen) != len(scenario.rounds) * scenario.builds:
        raise MissingField(f"{len(observation.seen)} observations for {len(scenario.rounds)} rounds")
    for index, batch in enumerate(scenario.rounds):
        seen = observation.seen[index * scenario.builds]
        if not seen.error:
            yield index, batch, seen


def each_round(judge: JudgeRound) -> Callable[[Scenario, Sequence[Observation]], Outcome]:
    """Make a judge of a scenario from a judge of a round: the first finding counts, a missing field is UNKNOWN."""

    def judged(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        assert isinstance(scenario, MetadataScenario)
        outcome = NOT_RUN
        try:
            for index, batch, seen in built_rounds(scenario, observations[0]):
                if found := judge(scenario, index, batch, seen):
                    return failed(found)
                outcome = PASSED
        except NothingToJudge:
            return NOT_RUN
        except MissingField as error:
            return unknown(str(error))
        return outcome

    return judged
