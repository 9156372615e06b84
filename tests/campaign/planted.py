"""Faults planted in the ideal subject: each turns right observations of some scenarios into wrong ones."""

from collections.abc import Callable, Sequence

from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Observation
from harness.scenario.strategies import Cell
from tests.ideal import observation, with_field

LENGTHS = "seq_lens_cpu_int"
QUERIES = "actual_seq_lengths_q"

#: The cell of the faults, and the only code path that they touch.
CELL = Cell(("DFLASH",), "target_verify", "eager", "mha")

Plant = Callable[[MetadataScenario, Observation], Observation]


def subject(*plants: Plant) -> Callable[[Sequence[Scenario]], list[Observation]]:
    """An `observe` with these faults."""

    def one(scenario: Scenario) -> Observation:
        seen = observation(scenario)
        if isinstance(scenario, MetadataScenario) and in_cell(scenario):
            for plant in plants:
                seen = plant(scenario, seen)
        return seen

    return lambda scenarios: [one(scenario) for scenario in scenarios]


def in_cell(scenario: MetadataScenario) -> bool:
    """Whether `scenario` goes through the code path of `CELL`."""
    return (scenario.algorithm, scenario.mode, scenario.executor, scenario.target) == ("DFLASH", *CELL[1:])


def _each(
    name: str, change: Callable[[MetadataScenario, int, int], int], scenario: MetadataScenario, seen: Observation
) -> Observation:
    """`seen` with every value of field `name` changed; `change` gets the scenario, the value and the prefix."""
    batches = [batch for batch in scenario.rounds for _ in range(scenario.builds)]
    for build, batch in enumerate(batches):
        values = seen.seen[build].fields[name].values.tolist()
        pairs = zip(values, batch, strict=True)
        seen = with_field(seen, name, [change(scenario, value, one.prefix) for value, one in pairs], build)
    return seen


def block_added_twice(scenario: MetadataScenario, seen: Observation) -> Observation:
    """sglang #31739: the host lengths of a verify have the block already, and get it again."""
    return _each(LENGTHS, lambda scenario, value, prefix: value + scenario.draft_tokens, scenario, seen)


def block_added_twice_across_pages(scenario: MetadataScenario, seen: Observation) -> Observation:
    """The same, only where the block of a request begins in one page and ends in the next."""

    def change(scenario: MetadataScenario, value: int, prefix: int) -> int:
        page = scenario.pool.page_size
        crosses = prefix % page + scenario.draft_tokens > page
        return value + scenario.draft_tokens if crosses else value

    return _each(LENGTHS, change, scenario, seen)


def long_prefix_cut(scenario: MetadataScenario, seen: Observation) -> Observation:
    """Prefixes of 200 tokens and more lose a hundred: more than any block, so that it is no block that is missing."""

    def change(scenario: MetadataScenario, value: int, prefix: int) -> int:
        return value - 100 if prefix >= 200 else value

    return _each(LENGTHS, change, scenario, seen)


def queries_not_counted(scenario: MetadataScenario, seen: Observation) -> Observation:
    """Cumulative query lengths that are one short."""
    return _each(QUERIES, lambda scenario, value, prefix: value - 1, scenario, seen)
