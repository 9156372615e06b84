"""Sliding windows: pages of the wrong pool and masks that hide or show too much are found."""

import pytest
from msgspec.structs import replace

from harness.checks.finding import PASSED
from harness.checks.registry import CHECKS
from harness.scenario import MetadataScenario, Pool, Request
from tests.ideal import CONTRACT_EXAMPLE, Planted, judge, says

WINDOW_TABLE = CHECKS["window-table"]
WINDOW_MASK = CHECKS["window-mask"]

#: Forty pages: page 1 of the full pool is page 40 of the window pool, 11 is 30 and 12 is 29.
WINDOW = replace(CONTRACT_EXAMPLE, target="swa", window=64)
#: The first query is at 300, so that it sees 237 to 300: of the pages 1, 2 and 3 the first is before the window.
LONG = replace(WINDOW, rounds=((Request(300),),))
#: A block of 4 at 20 sees 24 positions, from 13 on.
REPLAY = MetadataScenario(
    "EAGLE",
    "target_verify",
    ((Request(20),),),
    executor="graph",
    target="swa",
    draft_tokens=4,
    window=8,
    pool=Pool(page_size=16, context_length=32),
    buckets=(1,),
)

PLANTED = [
    Planted(
        "pages of the full pool",
        WINDOW_TABLE,
        WINDOW,
        says("block_tables_swa", [[1, 0], [11, 12]]),
        "full-pool-page",
        "block_tables_swa[0, 0]=1, but should be 40",
    ),
    Planted(
        "the newest page not translated",
        WINDOW_TABLE,
        WINDOW,
        says("block_tables_swa", [[40, 0], [30, 12]]),
        "full-pool-page",
        "block_tables_swa[1, 1]=12, but should be 29",
    ),
    Planted(
        "the page of another request",
        WINDOW_TABLE,
        WINDOW,
        says("block_tables_swa", [[30, 0], [30, 29]]),
        "page-wrong",
        "block_tables_swa[0, 0]=30, but should be 40",
    ),
    Planted(
        "one page short",
        WINDOW_TABLE,
        WINDOW,
        says("block_tables_swa", [[40], [30]]),
        "too-narrow",
        "block_tables_swa has 1 columns, but 146 positions need 2",
    ),
    Planted(
        "a wrong page at the beginning of the window",
        WINDOW_TABLE,
        LONG,
        says("block_tables_swa", [[40, 40, 38]]),
        "page-wrong",
        "block_tables_swa[0, 1]=40, but should be 39",
    ),
    Planted(
        "draft tokens hidden",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[13, 20, 7]]),
        "draft-hidden",
        "swa_mask[0] leaves 13 to 20 visible, but should leave 13 to 24",
    ),
    Planted(
        "a window counted from the committed prefix",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[12, 20, 8]]),
        "draft-hidden",
        "swa_mask[0] leaves 12 to 20 visible, but should leave 13 to 24",
    ),
    Planted(
        "a window too long",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[12, 24, 12]]),
        "window-long",
        "swa_mask[0] leaves 12 to 24 visible, but should leave 13 to 24",
    ),
    Planted(
        "a window counted from the last query",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[16, 24, 8]]),
        "window-short",
        "swa_mask[0] leaves 16 to 24 visible, but should leave 13 to 24",
    ),
    Planted(
        "positions beyond the length shown",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[13, 28, 15]]),
        "beyond-length",
        "swa_mask[0] leaves 13 to 28 visible, but should leave 13 to 24",
    ),
    Planted(
        "everything hidden",
        WINDOW_MASK,
        REPLAY,
        says("swa_visible", [[0, 0, 0]]),
        "draft-hidden",
        "swa_mask[0] leaves 0 to 0 visible, but should leave 13 to 24",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_pages_before_the_window_may_have_been_freed() -> None:
    assert judge(WINDOW_TABLE, LONG, says("block_tables_swa", [[0, 39, 38]])) == PASSED


def test_a_hole_in_the_mask_is_found() -> None:
    assert judge(WINDOW_MASK, REPLAY, says("swa_visible", [[13, 24, 10]])).findings


def test_the_mask_is_that_of_a_replayed_graph_alone() -> None:
    assert WINDOW_MASK.applies(REPLAY)
    assert not WINDOW_MASK.applies(WINDOW)


@pytest.mark.parametrize(
    "scenario",
    [CONTRACT_EXAMPLE, replace(LONG, rounds=((Request(300, host_lag=1),),)), replace(LONG, host_view="absent")],
    ids=["no window", "lagging", "no host lengths"],
)
def test_a_window_is_judged_where_there_is_one_and_lengths_are_known(scenario: MetadataScenario) -> None:
    assert not WINDOW_TABLE.applies(scenario)
