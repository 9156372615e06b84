"""A ledger of a hybrid pool: a window layer is judged by the window's pool, and by what its queries can see."""

import numpy as np
import pytest

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.shadow.ledger import Ledger, Row
from harness.shadow.violation import Kind

PAGE, PAGES, FULL, WINDOW = 4, 8, 1, 2
#: Row 1 has 10 positions in pages 3, 5 and 2 of the window's pool, of which the first has been freed.
FREED = np.array([[0] * 12, [0] * 4 + [20, 21, 22, 23] + [8, 9, 10, 11]])
ROWS = (Row(1, 9, 10),)
#: What a window layer sees before a query's own position.
SEEN = 4


def ledger() -> Ledger:
    """Positions 4 to 9 are written in the window's pool, and nothing in the full one."""
    made = Ledger({WINDOW})
    assert made.write(_write(WINDOW, 20, 21, 22, 23, 8), PAGE, None, FREED) == []
    assert made.write(_write(WINDOW, 9), PAGE, ROWS, FREED) == []
    return made


def _write(cache: int, *slots: int) -> CacheWrite:
    return CacheWrite("store", cache, np.array(slots, dtype=np.int64))


def _read(*pages: int, length: int = 10, cache: int = WINDOW) -> AttentionRead:
    return AttentionRead("attend", cache, PAGE, PAGES, np.array([pages]), (length,), (1,))


def test_what_has_left_the_window_may_be_anybodys() -> None:
    assert ledger().read(_read(0, 5, 2), ROWS, FREED, SEEN) == []
    assert ledger().read(_read(7, 5, 2), ROWS, FREED, SEEN) == []


@pytest.mark.parametrize(
    ("pages", "window", "kind", "position"),
    [
        ((0, 5, 2), None, "never-written", 0),  # a layer that sees everything
        ((0, 7, 2), SEEN, "foreign", 5),  # the first position that the query sees, on another page
        ((0, 5, 6), SEEN, "foreign", 8),
        ((0, 9, 2), SEEN, "page-out-of-range", 5),
    ],
)
def test_what_the_window_shows_is_judged(pages: tuple[int, ...], window: int | None, kind: Kind, position: int) -> None:
    found = ledger().read(_read(*pages), ROWS, FREED, window)

    assert (found[0].kind, found[0].position) == (kind, position)


def test_what_is_freed_in_one_pool_stays_written_in_the_other() -> None:
    made = ledger()
    made.freed(np.array([8, 9]))

    assert made.read(_read(0, 5, 2), ROWS, FREED, SEEN) == []

    made.freed(np.array([8, 9]), window=True)

    assert [bad.kind for bad in made.read(_read(0, 5, 2), ROWS, FREED, SEEN)] == ["never-written"]
