"""The ledger of a server's KV slots: by the server's own table, what must not be read or written is found."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.shadow.ledger import Ledger, Row
from harness.shadow.violation import NONE, Kind, Violation

READ, WRITE, KEYS, VALUES = "attend", "store", 1, 2
PAGE, PAGES = 4, 10
#: Rows 1 and 2 of the pool share page 1, and go on in pages 2, 3 and in 5, 6; row 0 is padding.
TABLE = np.array(
    [[0] * 12, [*range(4, 8), *range(8, 12), *range(12, 16)], [*range(4, 8), *range(20, 24), *range(24, 28)]]
)
#: Row 1 has 7 positions and row 2 has 6, and a verify is about to write three more of each.
BATCH = (Row(1, 7, 10), Row(2, 6, 9))
BLOCK = [[1, 2, 3], [1, 5, 6]]


def read(table: Sequence[Sequence[int]], *lengths: int, cache: int = KEYS) -> AttentionRead:
    """An attention call through `table`."""
    return AttentionRead(READ, cache, PAGE, PAGES, np.array(table), lengths, (3,) * len(lengths))


def slots(row: int, start: int, end: int) -> list[int]:
    """The slots of the positions `[start, end)` of a row."""
    return TABLE[row, start:end].tolist()


def write(written: Sequence[int], cache: int = KEYS) -> CacheWrite:
    return CacheWrite(WRITE, cache, np.array(written, dtype=np.int64))


def served() -> Ledger:
    """Both requests are committed, and the block of the third step is written."""
    ledger = Ledger()
    ledger.step = 3
    before = [*slots(1, 0, 7), *slots(2, 4, 6)]
    assert ledger.write(write(before), PAGE, (Row(1, 0, 7), Row(2, 4, 6)), TABLE) == []
    assert ledger.write(write([*slots(1, 7, 10), *slots(2, 6, 9)]), PAGE, BATCH, TABLE) == []
    return ledger


def found(kind: Kind, request: int, row: int, position: int, page: int, slot: int, count: int) -> Violation:
    return Violation(kind, WRITE if request == NONE else READ, 3, request, row, NONE, position, page, slot, count)


@pytest.mark.parametrize(
    "event",
    [
        read(BLOCK, 10, 9),
        read(BLOCK, 7, 6),
        read([[1, 2, 3, 9], [1, 5, 6, 0]], 10, 9),  # what lies beyond the length is not read
        read([[1, 2, 3]] * 2, 0, 0),
        read([*BLOCK, [0, 0, 0]], 10, 9, 1),  # a padded row
        read([*BLOCK, [0, 0, 0], [0, 0, 0]], 10, 9, 1, 1),  # as many padded rows as requests
    ],
    ids=str,
)
def test_what_was_written_for_a_request_may_be_read(event: AttentionRead) -> None:
    assert served().read(event, BATCH, TABLE) == []


@pytest.mark.parametrize(
    ("event", "violation"),
    [
        (read(BLOCK, 10, 12), found("never-written", 1, 2, 9, 6, 25, 3)),
        (read(BLOCK, 12, 9), found("never-written", 0, 1, 10, 3, 14, 2)),
        (read([[1, 2, 3], [1, 2, 6]], 10, 9), found("foreign", 1, 2, 4, 2, 8, 4)),
        (read([[2, 1, 3], [1, 5, 6]], 10, 9), found("foreign", 0, 1, 0, 2, 8, 8)),
        (read([[1, 2, 0], [1, 5, 6]], 10, 9), found("foreign", 0, 1, 8, 0, 0, 2)),
        (read([[1, 2, 3], [1, 5, 10]], 10, 9), found("page-out-of-range", 1, 2, 8, 10, 40, 1)),
        (read([[1, 2, 3], [-1, 5, 6]], 10, 9), found("page-out-of-range", 1, 2, 0, -1, -4, 4)),
        (read([[1, 2], [1, 5]], 10, 8), found("table-too-narrow", 0, 1, 8, NONE, NONE, 2)),
        (read(BLOCK, 10, -3), found("negative-length", 1, 2, -3, NONE, NONE, 1)),
        (read(BLOCK[:1], 10), found("rows-missing", 1, 2, NONE, NONE, NONE, 1)),
        (read(BLOCK, 10), found("rows-missing", 1, 2, NONE, NONE, NONE, 1)),
    ],
    ids=lambda value: value.kind if isinstance(value, Violation) else "",
)
def test_a_planted_read_is_found_with_its_place(event: AttentionRead, violation: Violation) -> None:
    assert served().read(event, BATCH, TABLE) == [violation]


def test_a_slot_is_told_by_the_cache_that_lacks_it() -> None:
    (violation,) = served().read(read(BLOCK, 1, 0, cache=VALUES), BATCH, TABLE)

    assert violation.kind == "never-written"


def test_what_was_freed_is_nobodys_until_it_is_written_again() -> None:
    ledger = served()
    ledger.freed(np.arange(24, 28))

    assert ledger.read(read(BLOCK, 10, 9), BATCH, TABLE) == [found("never-written", 1, 2, 8, 6, 24, 1)]
    ledger.write(write([24]), PAGE, None, TABLE)
    assert ledger.read(read(BLOCK, 10, 9), BATCH, TABLE) == []


def test_slots_that_a_cache_has_not_seen_yet_can_be_freed() -> None:
    served().freed(np.arange(4 * PAGES, 5 * PAGES))


@pytest.mark.parametrize(
    ("written", "violation"),
    [
        ([*slots(1, 7, 10), 32], found("not-reserved", NONE, NONE, NONE, 8, 32, 1)),
        ([*slots(1, 6, 9)], found("not-reserved", NONE, NONE, NONE, 2, 10, 1)),  # is committed
        ([*slots(2, 6, 11)], found("not-reserved", NONE, NONE, NONE, 6, 25, 2)),  # is beyond the block
        ([*slots(1, 7, 10), *slots(1, 8, 9)], found("written-twice", NONE, NONE, NONE, 3, 12, 1)),
    ],
)
def test_a_planted_write_is_found_with_its_slot(written: list[int], violation: Violation) -> None:
    assert served().write(write(written), PAGE, BATCH, TABLE) == [violation]


@pytest.mark.parametrize(
    "written", [[*slots(1, 7, 10), *slots(2, 6, 9)], [*slots(1, 7, 10), 0, 1, 1], []], ids=["block", "padding", "none"]
)
def test_a_write_to_the_positions_of_the_step_or_to_the_padding_page_is_right(written: list[int]) -> None:
    assert served().write(write(written), PAGE, BATCH, TABLE) == []


def test_a_write_for_nobody_in_particular_is_noted_and_not_judged() -> None:
    ledger = served()

    assert ledger.write(write([32, 32]), PAGE, None, TABLE) == []
    assert ledger.read(read([[8]], 1), [Row(1, 0, 0)], np.array([[0], [32]])) == []


def test_the_padding_page_is_never_written() -> None:
    ledger = served()
    ledger.write(write([0]), PAGE, None, TABLE)

    (violation,) = ledger.read(read([[0]], 1), [Row(1, 0, 0)], np.array([[0], [0]]))
    assert violation.kind == "never-written"


@pytest.mark.parametrize("written", [[32], [32, 32]])
def test_what_was_written_where_it_must_not_be_is_written_all_the_same(written: list[int]) -> None:
    """A fault is told once, where it is made, and not again by every read."""
    ledger = served()

    assert ledger.write(write(written), PAGE, BATCH, TABLE) != []
    assert ledger.read(read([[8]], 1), [Row(1, 0, 0)], np.array([[0], [32]])) == []


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (
            lambda ledger: ledger.read(read(BLOCK, 10, 12), BATCH, TABLE),
            "attend reads position 9 of request 1 (row 2): page 6, slot 25 was never written (3 positions) [step 3]",
        ),
        (
            lambda ledger: ledger.write(write([*slots(1, 7, 10), 32]), PAGE, BATCH, TABLE),
            "store writes where it must not: page 8, slot 32 is not reserved for any request of the step "
            "(1 position) [step 3]",
        ),
    ],
)
def test_a_violation_is_told_in_a_sentence(act: Callable[[Ledger], list[Violation]], sentence: str) -> None:
    assert [one.sentence() for one in act(served())] == [sentence]
