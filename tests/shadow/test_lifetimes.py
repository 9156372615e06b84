"""The record over time: slots are reserved, written, shared, freed, and reserved again."""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest

from harness.shadow.ownership import NOBODY, SHARED
from harness.shadow.record import NEVER, Shadow, Slot
from harness.shadow.violation import NONE, Violation
from tests.shadow.pool import KEYS, PAGES, READ, TABLE, VALUES, found, read, two_requests, write


@pytest.mark.parametrize("page_size", [1, 128])
@pytest.mark.parametrize("length", [64, 1024, 16384])
def test_one_position_too_many_is_found(length: int, page_size: int) -> None:
    pages = list(range(1, (length + 128) // page_size + 1))
    shadow = Shadow(len(pages) + 1, page_size)
    shadow.reserve(1, reversed(pages))
    table = [pages[::-1]]
    slots = [table[0][j // page_size] * page_size + j % page_size for j in range(length)]
    shadow.wrote(slots[:-1])
    shadow.begin_step([1], [length - 1])
    assert shadow.check(write(slots[-1:])) == []
    assert shadow.check(read(shadow, table, [length])) == []
    page = table[0][length // page_size]
    slot = page * page_size + length % page_size
    expected = Violation("never-written", READ, 1, 0, 1, 0, length, page, slot, 1)
    assert shadow.check(read(shadow, table, [length + 1])) == [expected]


@pytest.mark.parametrize("page_size", [1, 128])
def test_a_prefix_that_one_row_wrote_and_another_shares_is_clean_until_it_is_written_again(page_size: int) -> None:
    shadow = Shadow(4, page_size)
    shadow.reserve(1, [2])
    shadow.begin_step([1], [0])
    assert shadow.check(write(range(2 * page_size, 3 * page_size))) == []
    shadow.reserve(2, [2], shared=True)
    shadow.begin_step([1, 2], [0, 0])
    assert shadow.check(read(shadow, [[2], [2]], [page_size, page_size])) == []
    assert [violation.kind for violation in shadow.check(write([2 * page_size]))] == ["shared-overwritten"]


def test_a_shared_page_is_foreign_to_a_row_that_does_not_share_it() -> None:
    shadow = two_requests()
    shadow.begin_step([9], [256])
    assert [violation.kind for violation in shadow.check(read(shadow, [[1, 8]], [256]))] == ["foreign"]


def test_a_shared_page_outlives_one_of_its_rows() -> None:
    shadow = two_requests()
    shadow.free(3)
    assert shadow.look(KEYS, 128) == Slot("written", SHARED, 0, 0)
    shadow.begin_step([5], [140])
    assert shadow.check(read(shadow, TABLE[1:], [156])) == []
    shadow.free(5)
    assert shadow.look(KEYS, 128) == Slot("free", NOBODY, NONE, NEVER)


def test_slots_freed_and_reserved_again_are_unwritten_until_they_are_written_again() -> None:
    shadow = two_requests()
    shadow.free(9)
    shadow.reserve(2, [7])
    shadow.begin_step([2], [0])
    assert shadow.look(KEYS, 900) == Slot("reserved", 2, 4, NEVER)
    expected = Violation("never-written", READ, 2, 0, 2, 0, 0, 7, 896, 100)
    assert shadow.check(read(shadow, [[7]], [100])) == [expected]
    assert shadow.check(write(range(896, 996))) == []
    assert shadow.check(read(shadow, [[7]], [100])) == []
    assert shadow.look(KEYS, 900) == Slot("written", 2, 4, 2)


def test_a_freed_page_is_never_written_to_whoever_reads_it() -> None:
    shadow = two_requests()
    shadow.free(9)
    assert [violation.kind for violation in shadow.check(read(shadow, [[1, 7], [1, 3]], [129, 1]))] == ["never-written"]


def test_a_write_to_one_cache_does_not_count_in_another_but_the_committed_prefix_does() -> None:
    shadow = two_requests()
    expected = found("never-written", 0, 3, 0, 200, 2, 328, 16)
    assert shadow.check(read(shadow, TABLE, [216, 140], cache=VALUES)) == [expected]
    assert shadow.check(write(range(328, 344), cache=VALUES)) == []
    assert shadow.check(read(shadow, TABLE, [216, 140], cache=VALUES)) == []


def test_one_request_can_have_several_kinds_of_fault_and_each_is_counted() -> None:
    shadow = two_requests()
    violations = shadow.check(read(shadow, [[0, 7, 2, 4, -1], [1, 3, 6, 0, 0]], [700, 156]))
    assert [(violation.kind, violation.position, violation.count) for violation in violations] == [
        ("table-too-narrow", 640, 60),
        ("wrong-position", 256, 256),
        ("foreign", 128, 128),
        ("padding-read", 0, 128),
        ("page-out-of-range", 512, 128),
    ]


def test_padded_rows_may_not_read_outside_the_cache() -> None:
    shadow = two_requests()
    violations = shadow.check(read(shadow, [[1, 2], [1, 3], [0, PAGES]], [216, 156, 129]))
    assert violations == [Violation("page-out-of-range", READ, 1, 2, 0, 32, 128, PAGES, PAGES * 128, 1)]


def test_query_lengths_for_fewer_rows_than_requests_are_missing_rows() -> None:
    shadow = two_requests()
    event = read(shadow, TABLE, [216, 156])._replace(query_lengths=(16,))
    assert [violation.kind for violation in shadow.check(event)] == ["rows-missing"]


def test_pages_reserved_during_a_step_may_be_written_in_it() -> None:
    shadow = two_requests()
    shadow.reserve(3, [9], first_position=384)
    assert shadow.check(write([1152])) == []


def test_a_write_to_a_free_slot_does_not_count_once_the_slot_is_reserved() -> None:
    shadow = two_requests()
    assert [violation.kind for violation in shadow.check(write([1152]))] == ["not-reserved"]
    shadow.reserve(2, [9])
    assert shadow.look(KEYS, 1152) == Slot("reserved", 2, 0, NEVER)


REFUSED: list[tuple[str, Callable[[Shadow], Any]]] = [
    ("page 0 cannot be reserved", lambda shadow: shadow.reserve(1, [0])),
    ("page 10 cannot be reserved", lambda shadow: shadow.reserve(1, [PAGES])),
    ("rows of requests count from 1", lambda shadow: shadow.reserve(0, [9])),
    ("reserves a page twice", lambda shadow: shadow.reserve(1, [9, 9])),
    (r"page 2 is held by rows \[3\]", lambda shadow: shadow.reserve(5, [9, 2])),
    (r"page 2 is held by rows \[3\]", lambda shadow: shadow.reserve(3, [2], 128, shared=True)),
    (r"page 1 is held by rows \[3, 5\]", lambda shadow: shadow.reserve(9, [1], 128, shared=True)),
    ("row 4 has nothing to free", lambda shadow: shadow.free(4)),
    ("slot 1152 is not reserved", lambda shadow: shadow.wrote([900, 1152])),
    ("slot -1 is not reserved", lambda shadow: shadow.wrote([-1])),
    ("2 rows, but 1 committed", lambda shadow: shadow.begin_step([1, 2], [4])),
    ("a cache of 3 pages of 128", lambda shadow: shadow.check(read(shadow, TABLE, [1, 1])._replace(pages=3))),
]


@pytest.mark.parametrize(("sentence", "misuse"), REFUSED)
def test_what_no_allocator_does_is_refused_and_changes_nothing(sentence: str, misuse: Callable[[Shadow], Any]) -> None:
    shadow = two_requests()
    before = [shadow.look(KEYS, slot) for slot in range(PAGES * 128)]
    with pytest.raises(ValueError, match=sentence):
        misuse(shadow)
    assert [shadow.look(KEYS, slot) for slot in range(PAGES * 128)] == before


def test_checking_a_read_of_4096_positions_takes_well_under_a_millisecond() -> None:
    shadow = Shadow(4097, 1)
    shadow.reserve(1, range(1, 4097))
    shadow.wrote(range(1, 4097))
    shadow.begin_step([1], [4096])
    event = read(shadow, [list(range(1, 4097))], [4096])
    times = []
    for _ in range(20):
        start = perf_counter()
        assert shadow.check(event) == []
        times.append(perf_counter() - start)
    assert min(times) < 1e-3
