"""Metamorphic checks: what must not change when the batch is put another way."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from msgspec.structs import replace

from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.checks.inputs import first_difference, shown
from harness.checks.lengths import length_fields
from harness.checks.rounds import TABLES, builds, built_rounds, field, what_is_read
from harness.checks.wording import finding, where
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, PageMap, Request, Scenario
from harness.scenario.metadata import PADDING_PAGE
from harness.scenario.observation import Observation, Seen


def _reversed(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    return (replace(scenario, rounds=tuple(batch[::-1] for batch in scenario.rounds)),)


def _request_order(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    outcome = NOT_RUN
    mirrored = {index: seen for index, _, seen in built_rounds(scenario, observations[1])}
    for index, batch, seen in built_rounds(scenario, observations[0]):
        if index not in mirrored:
            continue
        outcome = failed()
        live = len(batch)
        right = what_is_read(scenario, batch, seen)
        left = what_is_read(scenario, batch[::-1], mirrored[index])
        for name in (*length_fields(scenario), "block_tables"):
            here, there = field(right, name, live)[:live], field(left, name, live)[:live][::-1]
            if here.shape != there.shape or not np.array_equal(here, there):
                message = f"{name}={here.tolist()}, but {there.tolist()} with the requests in reverse order"
                message += f" [{where(scenario, index)}]"
                meaning = "what a request attends to depends on its place in the batch"
                return failed(finding("request-order", name, "order-matters", scenario, message, meaning))
    return outcome


def _relabelled(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    pool = replace(scenario.pool, page_offset=(scenario.pool.page_offset + 1) % PageMap(scenario).pages)
    return (replace(scenario, pool=pool),)


def _page_relabelling(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    (other,) = _relabelled(scenario)
    outcome = NOT_RUN
    relabelled = {index: seen for index, _, seen in built_rounds(other, observations[1])}
    for index, batch, seen in built_rounds(scenario, observations[0]):
        pages = list(zip(rows(scenario, batch), rows(other, batch), strict=True))
        if index not in relabelled or all(left.pages == right.pages for left, right in pages):
            continue
        outcome = failed()
        names = {pair for left, right in pages for pair in zip(left.pages, right.pages, strict=True)}
        new_name = {PADDING_PAGE: PADDING_PAGE, **dict(names)}
        table, there = (field(one, "block_tables", len(batch)) for one in (seen, relabelled[index]))
        for row, (left, _) in enumerate(pages):
            width = len(left.pages)
            renamed = [new_name.get(page, -1) for page in table[row, :width].tolist()]
            if renamed != there[row, :width].tolist():
                found = _page_finding(scenario, index, row, renamed, there[row, :width].tolist())
                return failed(found)
        for name in seen.fields.keys() - set(PAGE_FIELDS):
            if not np.array_equal(field(seen, name), field(relabelled[index], name)):
                message = f"{name} is {shown(relabelled[index].fields[name])} with the pages relabelled, but "
                message += f"{shown(seen.fields[name])} before [{where(scenario, index)}]"
                meaning = "a length depends on where the KV pages lie"
                return failed(finding("page-relabelling", name, "labels-matter", scenario, message, meaning))
    return outcome


#: Fields that hold page numbers, which relabelling is meant to change.
PAGE_FIELDS = (*TABLES, "flatten_prefix_block_tables")


def _page_finding(scenario: MetadataScenario, index: int, row: int, expected: list[int], actual: list[int]) -> Finding:
    message = f"block_tables[{row}]={actual} with the pages relabelled, but should be {expected}"
    message += f" [{where(scenario, index, row)}]"
    meaning = "the table does not follow req_to_token"
    return finding("page-relabelling", "block_tables", "labels-matter", scenario, message, meaning)


def _eager_twin(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    """The same rounds in eager, with int64 host lengths as the graph runner's own buffers have them."""
    rounds = tuple(batch for batch in scenario.rounds if batch)
    return (replace(scenario, executor="eager", buckets=(), rounds=rounds, host_dtype="int64"),)


def _eager_equals_replay(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    (twin,) = _eager_twin(scenario)
    eager = {twin.rounds[index]: seen for index, _, seen in built_rounds(twin, observations[1])}
    outcome = NOT_RUN
    for index, batch, seen in built_rounds(scenario, observations[0]):
        if not batch or batch not in eager:
            continue
        outcome = failed()
        if found := _differs_from_eager(scenario, index, batch, eager[batch], seen):
            return failed(found)
    return outcome


_OTHER_VIEW = "of a host that is ahead or behind, a graph follows one view of the lengths and eager the other"


def _differs_from_eager(
    scenario: MetadataScenario, index: int, batch: tuple[Request, ...], eager: Seen, replayed: Seen
) -> Finding | None:
    """The first length that differs, or the first row with other pages where both lengths reach them and they exist."""
    name, live = length_fields(_eager_twin(scenario)[0])[0], len(batch)
    lengths, told = field(eager, name)[:live].tolist(), field(replayed, "host_lengths")[:live].tolist()
    other = (row for row, (left, right) in enumerate(zip_longest(lengths, told)) if left != right)
    if (row := next(other, None)) is not None:
        message = f"host_lengths={told} at replay, but {name}={lengths} in eager [{where(scenario, index, row)}]"
        right = rows(scenario, batch)[row]
        lag = right.request.host_lag
        if lag and {*lengths[row : row + 1], *told[row : row + 1]} == {right.kv_length, right.kv_length + lag}:
            return finding("eager-equals-replay", name, "views-differ", scenario, message, _OTHER_VIEW)
        meaning = "the same batch is attended to differently with and without a graph"
        return finding("eager-equals-replay", name, "lengths-differ", scenario, message, meaning)
    tables = [field(seen, "block_tables", live) for seen in (eager, replayed)]
    for row, (right, length) in enumerate(zip(rows(scenario, batch), lengths, strict=True)):
        reach = max(0, -(-min(length, right.kv_length) // scenario.pool.page_size))
        left, graph = (table[row, :reach].tolist() for table in tables)
        if left != graph:
            message = f"block_tables[{row}]={graph} at replay, but {left} in eager [{where(scenario, index, row)}]"
            if right.request.host_lag:
                return finding("eager-equals-replay", "block_tables", "views-differ", scenario, message, _OTHER_VIEW)
            meaning = "the same batch reads other pages with and without a graph"
            return finding("eager-equals-replay", "block_tables", "pages-differ", scenario, message, meaning)
    return None


def _alone(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    return (replace(scenario, rounds=scenario.rounds[-1:]),)


def _replay_fresh(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """The last round of a sequence leaves the same metadata as that round on its own, right after the capture."""
    assert isinstance(scenario, MetadataScenario)
    (single,) = _alone(scenario)
    last, alone = builds(scenario, observations[0])[-1], builds(single, observations[1])[-1]
    if last.error or alone.error:
        return NOT_RUN
    last, alone = (what_is_read(scenario, scenario.rounds[-1], seen) for seen in (last, alone))
    if difference := first_difference(alone, last):
        name, words = difference
        message = f"after earlier rounds {words} when replayed first [{where(scenario, len(scenario.rounds) - 1)}]"
        meaning = "a replay uses lengths or pages left over from another batch"
        return failed(finding("replay-fresh", name, "left-over", scenario, message, meaning))
    return failed()


def _some_request(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and any(scenario.rounds)


def _several_requests(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and any(len(batch) > 1 for batch in scenario.rounds)


def _replay_sequence(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and scenario.executor == "graph" and len(scenario.rounds) > 1


def _comparable_replay(scenario: Scenario) -> bool:
    if not isinstance(scenario, MetadataScenario) or scenario.executor != "graph":
        return False
    return scenario.host_view == "published" and any(scenario.rounds)


CHECKS = (
    Check(
        "request-order",
        "metadata",
        "Putting the requests of a batch in another order changes the order of their rows and nothing else.",
        _several_requests,
        _request_order,
        _reversed,
    ),
    Check(
        "page-relabelling",
        "metadata",
        "Giving the KV pages other numbers changes the numbers in the tables and nothing else.",
        _some_request,
        _page_relabelling,
        _relabelled,
    ),
    Check(
        "eager-equals-replay",
        "metadata",
        "A replayed graph is told the same lengths and pages as eager for the same batch, by the same of two views.",
        _comparable_replay,
        _eager_equals_replay,
        _eager_twin,
    ),
    Check(
        "replay-fresh",
        "metadata",
        "A replay uses this round's lengths and pages, whatever was captured or replayed before.",
        _replay_sequence,
        _replay_fresh,
        _alone,
    ),
)
