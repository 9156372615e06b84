"""Who holds which page of a KV pool, and which positions its slots stand for.

Pages are reserved whole and in logical order, so owner and position are kept once per page: slot `s` stands for
position `first[s // P] + s % P`.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.scenario.metadata import PADDING_PAGE

#: Owners that are not a row of the pool; rows of requests count from 1, row 0 pads.
NOBODY = 0
SHARED = -1
#: The position that the slots of a page nobody holds stand for, and the request of a page outside the step.
NO_POSITION = -1
NO_REQUEST = -1


class Ownership:
    """`owner[page]` is a row, `NOBODY` or `SHARED`; `first[page]` is the logical position of the page's first slot."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages = pages
        self.page_size = page_size
        self.owner = np.full(pages, NOBODY, dtype=np.int32)
        self.first = np.full(pages, NO_POSITION, dtype=np.int64)
        self._holders = np.zeros(pages, dtype=np.int32)
        self._held: dict[int, npt.NDArray[np.bool_]] = {}
        self._nothing = np.zeros(pages, dtype=np.bool_)

    def reserve(self, row: int, pages: npt.NDArray[np.int64], first_position: int, shared: bool) -> None:
        """Give `pages` to `row`; raises ValueError, and changes nothing, where they cannot be given."""
        firsts = first_position + np.arange(len(pages)) * self.page_size
        self._refuse(row, pages, firsts, shared)
        held = self._held.setdefault(row, np.zeros(self.pages, dtype=np.bool_))
        held[pages] = True
        self._holders[pages] += 1
        self.owner[pages] = SHARED if shared else row
        self.first[pages] = firsts

    def _refuse(self, row: int, pages: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64], shared: bool) -> None:
        if row <= 0:
            raise ValueError(f"row {row} cannot reserve pages: rows of requests count from 1")
        unusable = pages[(pages < 0) | (pages >= self.pages) | (pages == PADDING_PAGE)]
        if unusable.size:
            raise ValueError(f"page {unusable[0]} cannot be reserved: the pool has pages 1 to {self.pages - 1}")
        if len(np.unique(pages)) != len(pages):
            raise ValueError(f"row {row} reserves a page twice")
        taken = self.owner[pages] != NOBODY
        refused = pages[taken & (self.held_by(row)[pages] | (not shared) | (self.first[pages] != firsts))]
        if refused.size:
            page = int(refused[0])
            holders = [holder for holder, held in self._held.items() if held[page]]
            raise ValueError(
                f"page {page} is held by rows {holders} from position {self.first[page]}: row {row} needs it"
            )

    def free(self, row: int) -> npt.NDArray[np.intp]:
        """Take back what `row` holds; returns the pages that nobody holds any more. A page once shared stays so."""
        if row not in self._held:
            raise ValueError(f"row {row} has nothing to free")
        pages = np.flatnonzero(self._held.pop(row))
        self._holders[pages] -= 1
        left: npt.NDArray[np.intp] = pages[self._holders[pages] == 0]
        self.owner[left] = NOBODY
        self.first[left] = NO_POSITION
        return left

    def held_by(self, row: int) -> npt.NDArray[np.bool_]:
        """For every page, whether `row` holds it, alone or with others."""
        return self._held.get(row, self._nothing)

    def requests(self, rows: Sequence[int]) -> npt.NDArray[np.int64]:
        """For every page, the first index in `rows` whose row holds it, or `NO_REQUEST`."""
        requests = np.full(self.pages, NO_REQUEST, dtype=np.int64)
        for index in reversed(range(len(rows))):
            requests[self.held_by(rows[index])] = index
        return requests
