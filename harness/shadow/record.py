"""One record per KV slot: free, reserved or written, whose it is, and which position it stands for.

Writes are recorded per cache address, since keys and values are two caches with the same slots: a read of a cache is
judged by what was written to that cache. Whatever was committed before (`Shadow.wrote`) is in every cache.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from harness.npu.boundary import CacheWrite, SlotEvent
from harness.shadow.overhead import timed
from harness.shadow.ownership import NO_POSITION, NOBODY, Ownership
from harness.shadow.reads import judge_read
from harness.shadow.step import Step
from harness.shadow.violation import Violation
from harness.shadow.writes import judge_write

#: The step of the last write of a slot that was not written in this ownership.
NEVER = -1


class Slot(NamedTuple):
    """The record of one slot: `owner` is a row, `NOBODY` or `SHARED`; `step` is that of the last write, or `NEVER`."""

    state: Literal["free", "reserved", "written"]
    owner: int
    position: int
    step: int


class Shadow:
    """The records of a pool of `pages` pages, of which page 0 is padding.

    `reserve`, `free` and `wrote` raise ValueError for what no allocator could have done, such as giving a page away
    twice. Not seen: a live request that writes into the padding page (until it reads), and what padded rows read,
    since nobody uses it.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self.step = Step()
        self.ownership = Ownership(pages, page_size)
        self._everywhere = np.full((pages, page_size), NEVER, dtype=np.int32)
        self._steps: dict[int, npt.NDArray[np.int32]] = {}
        self._requests: npt.NDArray[np.int64] | None = None
        self._first_use = np.zeros(pages * page_size, dtype=np.int64)

    @timed
    def reserve(self, row: int, pages: Iterable[int], first_position: int = 0, shared: bool = False) -> None:
        """Reserve `pages` in logical order for `row`, the first slot for `first_position`.

        With `shared`, pages that others hold stay written, and from now on nobody may write to any of `pages`.
        """
        self.ownership.reserve(row, np.array(list(pages), dtype=np.int64), first_position, shared)
        self._requests = None

    @timed
    def free(self, row: int) -> None:
        """End the ownership of `row`; slots that nobody else holds are free, and no longer written."""
        left = self.ownership.free(row)
        for steps in (self._everywhere, *self._steps.values()):
            steps[left] = NEVER
        self._requests = None

    @timed
    def wrote(self, slots: npt.ArrayLike) -> None:
        """Have `slots` written at this step in every cache, those included that no event has named yet."""
        flat = np.asarray(slots, dtype=np.int64).reshape(-1)
        inside = (flat >= 0) & (flat < self._everywhere.size)
        reserved = inside & (self.ownership.owner[np.where(inside, flat, 0) // self.ownership.page_size] != NOBODY)
        if not reserved.all():
            raise ValueError(f"slot {flat[~reserved][0]} is not reserved, so it cannot have been written")
        for steps in (self._everywhere, *self._steps.values()):
            steps.reshape(-1)[flat] = self.step.number

    @timed
    def begin_step(self, rows: Sequence[int], committed: Sequence[int]) -> None:
        """The next events are about `rows`, in batch order, with committed prefixes of these lengths.

        Row 0 is a padded row; so is every row of an event beyond the last of `rows`.
        """
        if len(rows) != len(committed):
            raise ValueError(f"{len(rows)} rows, but {len(committed)} committed prefixes")
        limits = np.array([*committed, 0], dtype=np.int64)
        self.step = Step(self.step.number + 1, tuple(rows), limits)
        self._requests = None

    @timed
    def check(self, event: SlotEvent, first: int = 0, more: bool = False) -> list[Violation]:
        """What is wrong with `event`, at most one violation per request and kind; then a write counts as written.

        A read may be of a part of the batch: of the requests from `first` on, with `more` to come for the rest.
        A position has one fault: outside the cache, in the padding page, of nobody (never written), of another
        request, of another position, never written, whichever comes first. Raises ValueError where `event` is about
        a cache of another shape.
        """
        if isinstance(event, CacheWrite):
            requests = self._page_requests()
            violations, written = judge_write(event, self.ownership, requests, self.step, self._first_use)
            self._steps_of(event.cache).reshape(-1)[written] = self.step.number
            return violations
        if (event.pages, event.page_size) != self._everywhere.shape:
            pages, page_size = self._everywhere.shape
            raise ValueError(
                f"{event.operator} reads a cache of {event.pages} pages of {event.page_size}, "
                f"but the record is of {pages} pages of {page_size}"
            )
        return judge_read(event, self.ownership, self._steps_of(event.cache), self.step, first, more)

    def look(self, cache: int, slot: int) -> Slot:
        """The record of `slot` of `cache`."""
        page, offset = divmod(slot, self.ownership.page_size)
        owner = int(self.ownership.owner[page])
        if owner == NOBODY:
            return Slot("free", NOBODY, NO_POSITION, NEVER)
        step = int(self._steps_of(cache)[page, offset])
        position = int(self.ownership.first[page]) + offset
        return Slot("reserved" if step == NEVER else "written", owner, position, step)

    def _steps_of(self, cache: int) -> npt.NDArray[np.int32]:
        if cache not in self._steps:
            self._steps[cache] = self._everywhere.copy()
        return self._steps[cache]

    def _page_requests(self) -> npt.NDArray[np.int64]:
        if self._requests is None:
            self._requests = self.ownership.requests(self.step.rows)
        return self._requests
