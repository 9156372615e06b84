"""Whose state a layer of linear attention reads and writes, in plain integers: docs/contract.md as code."""

from itertools import accumulate
from typing import NamedTuple

from harness.reference.metadata import query_tokens
from harness.scenario.metadata import MetadataScenario, Request


class State(NamedTuple):
    """What the linear layers must be told of one live request.

    `slot` is that of its state in the pool, `queries` are its query rows, half-open, and `steps` are the places of the
    intermediate states of a verify, one for each draft token, flat over (place in the batch, draft token).
    """

    slot: int
    queries: tuple[int, int]
    steps: range


def states(scenario: MetadataScenario, batch: tuple[Request, ...]) -> list[State]:
    """The states of one round, in batch order."""
    counts = [query_tokens(scenario, request) for request in batch]
    block = scenario.draft_tokens if scenario.mode == "target_verify" else 0
    return [
        State(scenario.state_slot(request.row), (end - count, end), range(place * block, (place + 1) * block))
        for place, (request, count, end) in enumerate(zip(batch, counts, accumulate(counts), strict=True))
    ]
