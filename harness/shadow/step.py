"""The step that events are about: its number, its requests, and what they had committed before it."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

#: The row of requests that only fill a batch.
PADDING_ROW = 0


class Step(NamedTuple):
    """`rows` are the rows of the requests in batch order.

    `committed` has the prefix length of each of them and then one 0, which index `NO_REQUEST` finds.
    """

    number: int = 0
    rows: tuple[int, ...] = ()
    committed: npt.NDArray[np.int64] = np.zeros(1, dtype=np.int64)

    def row(self, request: int) -> int:
        """The row of `request`; whatever lies beyond the last request pads."""
        return self.rows[request] if request < len(self.rows) else PADDING_ROW
