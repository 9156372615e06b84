"""A small pool with two requests, and the events that tests feed its record."""

from collections.abc import Sequence

import numpy as np

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.shadow.record import Shadow
from harness.shadow.violation import Kind, Violation

READ, WRITE, KEYS, VALUES = "attend", "store", 1, 2
PAGES = 10


def read(
    shadow: Shadow, table: Sequence[Sequence[int]], lengths: Sequence[int], queries: int = 16, cache: int = KEYS
) -> AttentionRead:
    """An attention call on the cache that `shadow` is about, with as many queries for every row."""
    pages, page_size = shadow.ownership.pages, shadow.ownership.page_size
    block_table = np.array(table, dtype=np.int64)
    return AttentionRead(READ, cache, page_size, pages, block_table, tuple(lengths), (queries,) * len(lengths))


def write(slots: Sequence[int] | range, cache: int = KEYS) -> CacheWrite:
    return CacheWrite(WRITE, cache, np.array(slots, dtype=np.int64))


def two_requests() -> Shadow:
    """Rows 3 and 5 share page 1 and go on in pages 2, 4 and in 3, 6; 200 and 140 positions are committed.

    Pages 7 and 8 are row 9's, which is not in the batch; page 9 is free. Step 1 has written 16 positions each.
    """
    shadow = Shadow(PAGES, 128)
    shadow.reserve(3, [1], shared=True)
    shadow.reserve(5, [1], shared=True)
    shadow.reserve(3, [2, 4], first_position=128)
    shadow.reserve(5, [3, 6], first_position=128)
    shadow.reserve(9, [7, 8])
    shadow.wrote([*range(128, 256), *range(256, 328), *range(384, 396), *range(896, 1152)])
    shadow.begin_step([3, 5], [200, 140])
    assert shadow.check(write([*range(328, 344), *range(396, 412)])) == []
    return shadow


TABLE = [[1, 2, 4], [1, 3, 6]]


def found(kind: Kind, request: int, row: int, query: int, *place: int) -> Violation:
    operator = READ if kind in READS else WRITE
    return Violation(kind, operator, 1, request, row, query, *place)


READS = {
    "never-written",
    "foreign",
    "wrong-position",
    "table-too-narrow",
    "negative-length",
    "rows-missing",
    "padding-read",
}
