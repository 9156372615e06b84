"""The operator boundary: what an attention operator or a cache write is told, before it does it.

Emulated operators call `announce`; a sanitizer listens. On a device the same events can be made from the arguments
of the real operators.
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


Event = CacheWrite | AttentionRead
Listener = Callable[[Event], None]
_listeners: list[Listener] = []


def announce(event: Event) -> None:
    """Tell every listener, before anything is read or written; a listener that raises stops the operator."""
    for listener in _listeners:
        listener(event)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Have `listener` told of every event in this process."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
