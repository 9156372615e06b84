"""What attention must see, in plain integers: docs/contract.md as code.

Nothing here looks at sglang or at a subject; `tests/test_reference.py` holds it to examples worked by hand.
"""

from itertools import accumulate
from math import ceil
from typing import NamedTuple

from harness.scenario.metadata import MetadataScenario, PageMap, Request


class Row(NamedTuple):
    """What one live request must be given.

    `kv_length` counts the KV positions that exist for it in this forward, `pages` are the pages of exactly these
    positions in order, `query_end` is the cumulative query length up to and including it, and `visible` is the
    half-open range of positions that some query of the request may see through the sliding window.
    """

    request: Request
    kv_length: int
    pages: list[int]
    query_end: int
    visible: tuple[int, int]


def query_tokens(scenario: MetadataScenario, request: Request) -> int:
    """Query rows of `request`: the new tokens, one per decode step, or the whole block.

    A draft extend runs over the whole block of D tokens, of which the accepted ones matter (EAGLE worker V2).
    """
    match scenario.mode:
        case "extend":
            return request.new_tokens
        case "decode" | "draft_decode":
            return 1
        case "target_verify" | "draft_block" | "draft_extend":
            return scenario.draft_tokens


def kv_length(scenario: MetadataScenario, request: Request) -> int:
    """KV positions visible to the last query of `request`; see the table in docs/contract.md."""
    if scenario.mode == "draft_decode":
        return request.prefix + scenario.step + 1
    return request.prefix + query_tokens(scenario, request)


def rows(scenario: MetadataScenario, batch: tuple[Request, ...]) -> list[Row]:
    """The rows of one round, in batch order."""
    pages = PageMap(scenario)
    ends = accumulate(query_tokens(scenario, request) for request in batch)
    result = []
    for request, end in zip(batch, ends, strict=True):
        length = kv_length(scenario, request)
        first_query = length - query_tokens(scenario, request)
        start = max(0, first_query + 1 - scenario.window) if scenario.window else 0
        result.append(Row(request, length, pages.table(request.row, length), end, (start, length)))
    return result


def prefix_pages(scenario: MetadataScenario, batch: tuple[Request, ...]) -> list[int]:
    """Pages of every committed prefix of an MLA extend, request after request, without gaps."""
    pages = PageMap(scenario)
    return [page for request in batch for page in pages.table(request.row, request.prefix)]


def table_width(scenario: MetadataScenario, batch: tuple[Request, ...]) -> int:
    """Columns that the block table must have at least."""
    return max((ceil(row.kv_length / scenario.pool.page_size) for row in rows(scenario, batch)), default=0)
