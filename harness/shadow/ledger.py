"""The KV slots of a running server: which are written, and whether a request may read or write them.

Where `Shadow` is told who holds a page, here the server's own table of slots says it (`req_to_token`): what a session
cannot know beforehand. Whether that table is right is another question, which the accounting of pages answers.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.scenario.metadata import PADDING_PAGE
from harness.shadow.overhead import timed
from harness.shadow.violation import NONE, Kind, Violation

Slots = npt.NDArray[np.int64]


class Row(NamedTuple):
    """A request of the running batch: its row in the pool, and the positions `[start, end)` that it may write."""

    row: int
    start: int
    end: int


class Ledger:
    """The written slots of every cache of a server; `step` counts the forwards.

    `windows` are the caches, by address, whose slots are those of a sliding window's pool.
    """

    def __init__(self, windows: Collection[int] = ()) -> None:
        self.step = 0
        self._windows = windows
        self._written: dict[int, npt.NDArray[np.bool_]] = {}

    @timed
    def freed(self, slots: Slots, window: bool = False) -> None:
        """Slots that nobody holds any more, of the window's pool or of all others: what they hold is nobody's."""
        for cache, written in self._written.items():
            if (cache in self._windows) == window:
                written[slots[slots < len(written)]] = False

    @timed
    def read(
        self, event: AttentionRead, rows: Sequence[Row], table: Slots, window: int | None = None
    ) -> list[Violation]:
        """What is wrong with an attention call for `rows`, where `table[row]` has the slots of the pool's rows.

        What lies beyond `rows` is padding; on an NPU a draft has one branch, so a request has one row. A layer with a
        `window` sees no more than so many positions before that of its first query.
        """
        found: list[Violation] = []
        written = self._of(event.cache, event.pages * event.page_size)
        given = min(len(event.block_table), len(event.kv_lengths))
        if given < len(rows):
            return [self._violation("rows-missing", event.operator, given, rows[given].row, count=len(rows) - given)]
        for index, row in enumerate(rows):
            first = 0 if window is None else max(0, event.kv_lengths[index] - event.query_lengths[index] - window)
            found += self._of_row(event, index, row.row, table[row.row], written, first)
        return found

    def _of_row(
        self,
        event: AttentionRead,
        index: int,
        row: int,
        slots: Slots,
        written: npt.NDArray[np.bool_],
        first: int,
    ) -> list[Violation]:
        length, page_size = event.kv_lengths[index], event.page_size
        if length < 0:
            return [self._violation("negative-length", event.operator, index, row, length)]
        found = []
        covered = min(length, event.block_table.shape[1] * page_size)
        if covered < length:
            found.append(
                self._violation("table-too-narrow", event.operator, index, row, covered, count=length - covered)
            )
        pages = event.block_table[index, : -(-covered // page_size)]
        own = slots[: len(pages) * page_size : page_size] // page_size
        outside = (pages < 0) | (pages >= event.pages)
        foreign = ~outside & (pages != own)
        positions = np.arange(covered)
        within = np.where(outside, PADDING_PAGE, pages)[positions // page_size] * page_size + positions % page_size
        faults: tuple[tuple[Kind, npt.NDArray[np.bool_]], ...] = (
            ("page-out-of-range", np.repeat(outside, page_size)[:covered]),
            ("foreign", np.repeat(foreign, page_size)[:covered]),
            ("never-written", ~written[within] & ~np.repeat(outside | foreign, page_size)[:covered]),
        )
        for kind, fault in faults:
            places = first + np.flatnonzero(fault[first:])
            if places.size:
                position = int(places[0])
                page = int(pages[position // page_size])
                slot = page * page_size + position % page_size
                found.append(self._violation(kind, event.operator, index, row, position, page, slot, count=len(places)))
        return found

    @timed
    def write(self, event: CacheWrite, page_size: int, rows: Sequence[Row] | None, table: Slots) -> list[Violation]:
        """What is wrong with a write for `rows`, or for nobody in particular where that is None; then it is written."""
        slots = event.slots.reshape(-1)
        size = int(max(slots.max(initial=0) + 1, table.max(initial=0) + 1))
        written = self._of(event.cache, size)
        live = slots // page_size != PADDING_PAGE
        found: list[Violation] = []
        if rows is not None:
            allowed = [table[row.row, row.start : row.end] for row in rows]
            mine = np.concatenate(allowed) if allowed else np.zeros(0, dtype=np.int64)
            faults: tuple[tuple[Kind, npt.NDArray[np.bool_]], ...] = (
                ("not-reserved", live & ~np.isin(slots, mine)),
                ("written-twice", live & _repeated(slots)),
            )
            for kind, fault in faults:
                places = np.flatnonzero(fault)
                if places.size:
                    slot = int(slots[places[0]])
                    page = slot // page_size
                    found.append(self._violation(kind, event.operator, NONE, NONE, NONE, page, slot, len(places)))
        written[slots[(slots >= 0) & live]] = True
        return found

    def _of(self, cache: int, size: int) -> npt.NDArray[np.bool_]:
        known = self._written.get(cache)
        if known is None or len(known) < size:
            grown = np.zeros(size, dtype=np.bool_)
            if known is not None:
                grown[: len(known)] = known
            self._written[cache] = known = grown
        return known

    def _violation(
        self,
        kind: Kind,
        operator: str,
        request: int,
        row: int,
        position: int = NONE,
        page: int = NONE,
        slot: int = NONE,
        count: int = 1,
    ) -> Violation:
        return Violation(kind, operator, self.step, request, row, NONE, position, page, slot, count)


def _repeated(slots: Slots) -> npt.NDArray[np.bool_]:
    """Which of `slots` has been there before."""
    repeated = np.ones(len(slots), dtype=np.bool_)
    repeated[np.unique(slots, return_index=True)[1]] = False
    return repeated
