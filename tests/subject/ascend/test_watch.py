"""Watching a step at the operator boundary: whose pool it is, and what a copy of both caches stands for."""

import numpy as np
from msgspec.structs import replace

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.metadata import Attention, Pool
from harness.subject.ascend.watch import Watch

DECODE = MetadataScenario(
    "NONE", "decode", ((Request(20),),), pool=Pool(page_size=16, rows=1), attention=Attention(), target="mla"
)
DRAFT = replace(DECODE, algorithm="EAGLE", mode="draft_decode", draft_tokens=4, step=1)
PAGES = PageMap(DECODE)
LATENTS, ROPES, COPY = 100, 200, 300


def watch(scenario: MetadataScenario, window: bool = False) -> Watch:
    return Watch(scenario, scenario.rounds[0], PageMap(scenario).pages + 1, window)


def write(scenario: MetadataScenario, cache: int, position: int) -> CacheWrite:
    return CacheWrite("write", cache, np.array([PageMap(scenario).slot(1, position)]))


def read(scenario: MetadataScenario, cache: int, length: int, window: bool = False) -> AttentionRead:
    pages = PageMap(scenario)
    table = np.array([pages.table(1, length)], dtype=np.int64)
    table = pages.swa_page(table) if window else table
    return AttentionRead("read", cache, 16, pages.pages + 1, table, (length,), (1,))


def kinds(found: Watch) -> list[str]:
    return [access.kind for access in found.accesses]


def test_a_copy_of_both_caches_holds_what_was_written_to_them() -> None:
    found = watch(DECODE)
    for cache in (LATENTS, ROPES):
        found(write(DECODE, cache, 20))
    found(read(DECODE, COPY, 21))

    assert kinds(found) == []


def test_a_position_too_many_of_a_copy_is_named_once() -> None:
    found = watch(DECODE)
    for cache in (LATENTS, ROPES):
        found(write(DECODE, cache, 20))
    found(read(DECODE, COPY, 22))

    assert kinds(found) == ["never-written"]


def test_a_cache_that_the_step_did_not_write_to_is_no_copy() -> None:
    found = watch(DECODE)
    found(write(DECODE, LATENTS, 20))
    found(read(DECODE, ROPES, 21))

    assert kinds(found) == ["never-written"]


def test_earlier_steps_of_a_draft_have_written() -> None:
    found = watch(DRAFT)
    found(write(DRAFT, LATENTS, 21))
    found(read(DRAFT, LATENTS, 22))

    assert kinds(found) == []


def test_a_draft_that_reads_the_next_step_is_named() -> None:
    found = watch(DRAFT)
    found(write(DRAFT, LATENTS, 21))
    found(read(DRAFT, LATENTS, 23))

    assert kinds(found) == ["never-written"]


def test_the_next_step_of_a_draft_reads_what_the_one_before_has_written_and_no_more() -> None:
    first = replace(DRAFT, step=0)
    found = Watch(first, first.rounds[0], PAGES.pages + 1, window=False, observed=1)
    found(write(DRAFT, LATENTS, 20))
    found.begin(DRAFT)
    found(write(DRAFT, LATENTS, 21))
    found(read(DRAFT, LATENTS, 22))
    assert kinds(found) == []

    found(read(DRAFT, LATENTS, 23))
    assert kinds(found) == ["never-written"]


def test_a_step_that_the_one_before_wrote_nothing_for_is_named() -> None:
    first = replace(DRAFT, step=0)
    found = Watch(first, first.rounds[0], PAGES.pages + 1, window=False, observed=1)
    found.begin(DRAFT)
    found(write(DRAFT, LATENTS, 21))
    found(read(DRAFT, LATENTS, 22))

    assert kinds(found) == ["never-written"]


def test_what_is_wrong_in_a_step_that_is_not_observed_is_not_named() -> None:
    first = replace(DRAFT, step=0)
    found = Watch(first, first.rounds[0], PAGES.pages + 1, window=False, observed=1)
    found(read(DRAFT, LATENTS, 23))

    assert kinds(found) == []


TWO = replace(DECODE, rounds=((Request(20), Request(20, row=2)),), pool=Pool(page_size=16, rows=2), target="mha")


def one_of_two(row: int) -> AttentionRead:
    """A call for the request in `row` alone, of the 20 positions that it has committed and its own."""
    pages = PageMap(TWO)
    return AttentionRead("read", LATENTS, 16, pages.pages + 1, np.array([pages.table(row, 21)]), (21,), (1,))


def begun(*rows: int) -> Watch:
    """A step that writes for both requests, and reads for those in `rows`, one after the other."""
    found, pages = watch(TWO), PageMap(TWO)
    found(CacheWrite("write", LATENTS, np.array([pages.slot(row, 20) for row in (1, 2)])))
    for row in rows:
        found(one_of_two(row))
    return found


def test_calls_request_by_request_are_one_batch() -> None:
    found = begun(1, 2)
    found.end()

    assert kinds(found) == []


def test_each_of_them_is_judged_as_its_own_request() -> None:
    found = begun(1, 1)
    found.end()

    assert kinds(found) == ["foreign"]
    assert "request 1 (row 2)" in found.accesses[0].sentence


def test_a_batch_that_is_left_in_the_middle_misses_a_row() -> None:
    found = begun(1)
    assert kinds(found) == []

    found.end()
    assert kinds(found) == ["rows-missing"]
    assert "request 1 (row 2)" in found.accesses[0].sentence


WINDOW = replace(DECODE, target="swa", window=4)


def test_the_window_pool_has_pages_of_its_own() -> None:
    found = watch(WINDOW, window=True)
    pages = PageMap(WINDOW)
    found(CacheWrite("write", LATENTS, np.array([pages.swa_slot(pages.slot(1, 20))])))
    found(read(WINDOW, LATENTS, 21, window=True))

    assert kinds(found) == []


def test_pages_of_the_full_pool_are_named_in_the_window_pool() -> None:
    found = watch(WINDOW, window=True)
    found(read(WINDOW, LATENTS, 21))

    assert kinds(found) == ["never-written"]


def test_a_write_to_the_full_pool_s_slot_is_named_in_the_window_pool() -> None:
    found = watch(WINDOW, window=True)
    found(write(WINDOW, LATENTS, 20))

    assert kinds(found) == ["not-reserved"]


def test_a_read_that_ends_before_the_query_is_named_with_both_lengths() -> None:
    found = watch(DECODE)
    for cache in (LATENTS, ROPES):
        found(write(DECODE, cache, 20))
    found(read(DECODE, LATENTS, 9))

    (access,) = found.accesses
    assert access.kind == "own-position-unread"
    assert access.sentence == (
        "read is told to read 9 positions of request 0 (row 1), whose queries stand at positions 20 to 20: "
        "silent wrong attention"
    )
