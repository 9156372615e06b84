"""Walking an observation round by round, for checks that judge each round on its own."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from harness.checks.check import MissingField
from harness.checks.finding import NOT_RUN, PASSED, Finding, Outcome, failed
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Array, Observation, Seen

JudgeRound = Callable[[MetadataScenario, int, tuple[Request, ...], Seen], Finding | None]

#: Fields that hold page numbers; entries past the pages of a row are never read.
TABLES = ("block_tables", "block_tables_swa")


def field(seen: Seen, name: str, live: int = 0) -> npt.NDArray[np.int32]:
    """The values of a metadata field; MissingField where it was not reported, or has fewer than `live` rows."""
    if name not in seen.fields:
        raise MissingField(f"the subject reported no {name}")
    values = seen.fields[name].values
    if len(values) < live:
        raise MissingField(f"{name} has {len(values)} rows for {live} requests")
    return values


def builds(scenario: MetadataScenario, observation: Observation) -> list[Seen]:
    """Every build of every round, in order; MissingField where one was not reported or reported as nothing."""
    wanted = len(scenario.rounds) * scenario.builds
    if len(observation.seen) != wanted:
        raise MissingField(f"{len(observation.seen)} builds were reported, and {wanted} asked for")
    if not all(seen.fields or seen.error for seen in observation.seen):
        raise MissingField("a build was reported without any field")
    return list(observation.seen)


def numbered_builds(scenario: MetadataScenario, observation: Observation) -> Iterator[tuple[int, Seen]]:
    """Every build, with the number of its round; raises as `builds` does."""
    for number, seen in enumerate(builds(scenario, observation)):
        yield number // scenario.builds, seen


def built_rounds(
    scenario: MetadataScenario, observation: Observation
) -> Iterator[tuple[int, tuple[Request, ...], Seen]]:
    """The first build of each round that raised nothing: its number, its batch and what was seen."""
    seen = builds(scenario, observation)[:: scenario.builds]
    for index, (batch, first) in enumerate(zip(scenario.rounds, seen, strict=True)):
        if not first.error:
            yield index, batch, first


def each_round(judge: JudgeRound) -> Callable[[Scenario, Sequence[Observation]], Outcome]:
    """Make a judge of a scenario from a judge of a round: the first finding counts."""

    def judged(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        assert isinstance(scenario, MetadataScenario)
        outcome = NOT_RUN
        for index, batch, seen in built_rounds(scenario, observations[0]):
            if found := judge(scenario, index, batch, seen):
                return failed(found)
            outcome = PASSED
        return outcome

    return judged


def what_is_read(scenario: MetadataScenario, batch: tuple[Request, ...], seen: Seen) -> Seen:
    """`seen` with every table entry that no operator reads put to zero: these may hold anything."""
    fields = dict(seen.fields)
    needed = [len(row.pages) for row in rows(scenario, batch)]
    for name in TABLES:
        if name in fields:
            table = fields[name].values[:, : max(needed, default=0)].copy()
            for row, pages in zip(table, needed, strict=False):
                row[pages:] = 0
            fields[name] = Array.of(table)
    return replace(seen, fields=fields)
