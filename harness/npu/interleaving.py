"""Scripts for the order in which streams work, so that a race is an ordinary failing test.

With `late`, the work of some streams is done only when it must be: what forgot to wait for it sees that it is missing.
With `early`, the work of one stream overtakes that of all others: what it should have waited for is not there yet.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from harness.npu.stream import Stream, hold_back, release


@contextmanager
def late(*streams: Stream) -> Iterator[None]:
    """Do the work of `streams` only when the host or another stream waits for it; at the end, do what is left.

    Where none is named, all streams there are are late.
    """
    with _held_back(hold_back(frozenset(streams) or None)):
        yield


@contextmanager
def early(stream: Stream) -> Iterator[None]:
    """Do the work of every other stream there is only when somebody waits for it; at the end, do what is left."""
    with _held_back(hold_back(None, but=frozenset({stream}))):
        yield


@contextmanager
def _held_back(streams: set[Stream]) -> Iterator[None]:
    try:
        yield
    finally:
        release(streams)
