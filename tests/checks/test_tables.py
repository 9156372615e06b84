"""Block tables: a page that is not the request's own is found wherever it is read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.checks.finding import PASSED, Verdict
from harness.checks.registry import CHECKS
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, Request
from harness.scenario.strategies import Cell, scenarios
from tests.ideal import CELLS, CONTRACT_EXAMPLE, SAME, Planted, judge, observation, says

BLOCK_TABLE = CHECKS["block-table"]
PADDED_ROWS = CHECKS["padded-rows"]

#: A bucket of four: two of its rows pad.
REPLAY = replace(CONTRACT_EXAMPLE, executor="graph", buckets=(4,))
#: An idle rank replays the smallest bucket.
IDLE = replace(REPLAY, rounds=((),), buckets=(1, 4))
LAGGING = replace(CONTRACT_EXAMPLE, rounds=((Request(5, host_lag=3),),))

PLANTED = [
    Planted(
        "one page short",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1], [11]]),
        "too-narrow",
        "block_tables has 1 columns, but 146 positions need 2",
    ),
    Planted(
        "a wrong page",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0], [11, 13]]),
        "page-wrong",
        "block_tables[1, 1]=13, but should be 12",
    ),
    Planted(
        "the padding page in place of a live one",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0], [11, 0]]),
        "page-wrong",
        "block_tables[1, 1]=0, but should be 12",
    ),
    Planted(
        "the table of another request",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 2], [1, 2]]),
        "page-wrong",
        "block_tables[1, 0]=1, but should be 11",
    ),
    Planted(
        "swapped rows",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[11, 12], [1, 0]]),
        "page-wrong",
        "block_tables[0, 0]=11, but should be 1",
    ),
    Planted(
        "swapped pages",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0], [12, 11]]),
        "page-wrong",
        "block_tables[1, 0]=12, but should be 11",
    ),
    Planted(
        "slots in place of pages",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[128, 0], [1408, 1536]]),
        "page-wrong",
        "block_tables[0, 0]=128, but should be 1",
    ),
    Planted(
        "a request without a row",
        BLOCK_TABLE,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0]]),
        "rows-missing",
        "block_tables has 1 rows for 2 requests",
    ),
    Planted(
        "the table of the round before",
        BLOCK_TABLE,
        replace(REPLAY, rounds=((Request(5),), (Request(130, row=2),)), buckets=(1,)),
        says("block_tables", [[1, 0, 0]], build=1),
        "page-wrong",
        "block_tables[0, 0]=1, but should be 11",
    ),
    Planted(
        "a padded row with a live page",
        PADDED_ROWS,
        REPLAY,
        says("block_tables", [[1, 0], [11, 12], [1, 0], [0, 0]]),
        "live-page",
        "block_tables[2]=[1, 0], but a padded row should hold only page 0",
    ),
    Planted(
        "a padded row with a live page that no length reaches",
        PADDED_ROWS,
        REPLAY,
        says("block_tables", [[1, 0], [11, 12], [0, 0], [0, 12]]),
        "live-page",
        "block_tables[3]=[0, 12], but a padded row should hold only page 0",
    ),
    Planted(
        "a padded row with a host length of an earlier batch",
        PADDED_ROWS,
        REPLAY,
        says("host_lengths", [21, 146, 146, 0]),
        "stale-length",
        "host_lengths[2]=146, but a padded row should count at most its own queries",
    ),
    Planted(
        "a padded row with a device length of an earlier batch",
        PADDED_ROWS,
        REPLAY,
        says("seq_lens", [21, 146, 0, 21]),
        "stale-length",
        "seq_lens[3]=21, but a padded row should count at most its own queries",
    ),
    Planted(
        "a padded row with a negative length",
        PADDED_ROWS,
        REPLAY,
        says("host_lengths", [21, 146, -1, 0]),
        "stale-length",
        "host_lengths[2]=-1, but a padded row should count at most its own queries",
    ),
    Planted(
        "an idle rank with a live page",
        PADDED_ROWS,
        IDLE,
        says("block_tables", [[1]]),
        "live-page",
        "block_tables[0]=[1], but a padded row should hold only page 0",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_entries_past_the_length_are_never_read() -> None:
    assert judge(BLOCK_TABLE, CONTRACT_EXAMPLE, says("block_tables", [[1, 12, 13], [11, 12, 1]])) == PASSED


def test_a_table_of_exactly_the_pages_is_wide_enough() -> None:
    assert judge(BLOCK_TABLE, CONTRACT_EXAMPLE, says("block_tables", [[1, 0], [11, 12]])) == PASSED


@pytest.mark.parametrize("length", [1, 16])
def test_a_padded_row_may_count_its_own_queries_in_the_padding_page(length: int) -> None:
    """From 0.5.20 padded rows leave the backend with the block as their length."""
    assert judge(PADDED_ROWS, REPLAY, says("host_lengths", [21, 146, length, length])) == PASSED


def test_pages_are_not_asked_for_by_exact_lengths_under_lag() -> None:
    assert not BLOCK_TABLE.applies(LAGGING)


@pytest.mark.parametrize("scenario", [CONTRACT_EXAMPLE, replace(REPLAY, buckets=(2,))], ids=["eager", "full bucket"])
def test_a_batch_without_padding_has_no_padded_rows(scenario: MetadataScenario) -> None:
    assert not PADDED_ROWS.applies(scenario)


def has_exact_pages(scenario: MetadataScenario) -> bool:
    return BLOCK_TABLE.applies(scenario) and any(scenario.rounds)


@pytest.mark.parametrize("cell", CELLS, ids=str)
@settings(SAME, max_examples=4)
@given(data=st.data())
def test_a_wrong_page_of_any_request_is_found(cell: Cell, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(cell).filter(has_exact_pages), label="scenario")
    number = data.draw(st.sampled_from([k for k, batch in enumerate(scenario.rounds) if batch]), label="round")
    row = data.draw(st.integers(0, len(scenario.rounds[number]) - 1), label="row")
    pages = rows(scenario, scenario.rounds[number])[row].pages
    column = data.draw(st.integers(0, len(pages) - 1), label="column")
    table = observation(scenario).seen[number].fields["block_tables"].values.tolist()
    table[row][column] = data.draw(st.sampled_from([0, pages[column] + 1, pages[column] - 1]), label="page")

    assert judge(BLOCK_TABLE, scenario, says("block_tables", table, number)).verdict is Verdict.FAIL
