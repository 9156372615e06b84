"""The operator boundary: what an attention operator or a cache write is told, before it does it.

Emulated operators call `announce`, and `announced` when they have told everything; a sanitizer listens. On a real NPU
the same events are made from the arguments of its operators (`real_operators`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class CacheWrite(NamedTuple):
    """Keys or values go to `slots` of one KV cache; `cache` is the address of its storage."""

    operator: str
    cache: int
    slots: npt.NDArray[np.int64]


class TileWrite(NamedTuple):
    """Parts of rows go to the `tiles` of what may be a KV cache in the layout NZ: (page, tile, position, number).

    Only who knows the cache knows how many tiles a row has, and so which slots these are (`slots`).
    """

    operator: str
    cache: int
    tiles: npt.NDArray[np.int64]

    def slots(self, tiles_per_row: int, page_size: int) -> CacheWrite:
        """The write of those slots to which whole rows go."""
        pages, within = np.divmod(self.tiles, tiles_per_row * page_size)
        slots, parts = pages * page_size + within % page_size, within // page_size
        whole = slots[parts == 0]
        for part in range(1, tiles_per_row):
            whole = whole[np.isin(whole, slots[parts == part])]
        return CacheWrite(self.operator, self.cache, whole)


class AttentionRead(NamedTuple):
    """An attention operator will read `kv_lengths[i]` positions through row `i` of `block_table`.

    `query_lengths` are per row and not cumulative; `pages` is how many pages the cache has.
    """

    operator: str
    cache: int
    page_size: int
    pages: int
    block_table: npt.NDArray[np.int64]
    kv_lengths: tuple[int, ...]
    query_lengths: tuple[int, ...]


SlotEvent = CacheWrite | AttentionRead
Event = SlotEvent | TileWrite
Listener = Callable[[Event], None]
_listeners: list[Listener] = []


class Announced(Exception):
    """Ends an operator that is only asked what it would announce."""


_collected: list[Event] | None = None


def announce(event: Event) -> None:
    """Tell every listener, before anything is read or written; a listener that raises stops the operator."""
    if _collected is not None:
        _collected.append(event)
        return
    for listener in _listeners:
        listener(event)


def announced() -> None:
    """Every event of this operator has been announced; it goes on unless it is only asked for them."""
    if _collected is not None:
        raise Announced


def events_of(operator: Callable[[], object]) -> list[Event]:
    """What `operator` would announce; it is run up to there, and nobody is told."""
    global _collected
    _collected = []
    try:
        operator()
    except Announced:
        pass
    finally:
        events, _collected = _collected, None
    return events


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` told of every event in this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
