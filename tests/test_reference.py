"""The reference and the convention, held to examples worked by hand: every number here is a literal."""

from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.reference.metadata import prefix_pages, rows, table_width
from harness.reference.states import State, states
from harness.scenario import MetadataScenario, PageMap, Pool, Request
from harness.scenario.convention import device_length, host_length
from harness.scenario.metadata import Algorithm, HostView, Mode
from harness.scenario.validity import why_invalid
from tests.ideal import CONTRACT_EXAMPLE, SAME

#: With blocks of 1 to 5, each of the four rows has 4 pages: row 1 has 1 to 4, row 2 has 5 to 8, and so on.
SMALL = Pool(page_size=16, context_length=32)
#: With a block of 2, each row has 17 pages of one slot: row 1 has 1 to 17, row 2 has 18 to 34.
SLOTS = Pool(page_size=1, context_length=8)
#: With a block of 8, each row has 4 pages.
MIDDLE = Pool(page_size=64, context_length=128)
#: With a block of 16, each row has 4 pages.
LARGE = Pool(page_size=128, context_length=256)
#: Every row begins with page 1; then row 1 has 2 to 4, row 2 has 5 to 7.
SHARED = replace(SMALL, shared_pages=1)
#: Row 1 has 1, 4, 7, 10; row 2 has 13, 16, 3, 6.
STRIDED = replace(SMALL, page_stride=3)
#: Ten pages: every row begins with 1, 4; then row 1 has 7, 10, row 2 has 3, 6.
SHARED_STRIDED = replace(SMALL, shared_pages=2, page_stride=3)


def scenario(
    algorithm: Algorithm, mode: Mode, draft_tokens: int, pool: Pool, *batch: Request, step: int = 0
) -> MetadataScenario:
    """One round of `batch`."""
    return MetadataScenario(algorithm, mode, (batch,), draft_tokens=draft_tokens, pool=pool, step=step)


class Example(NamedTuple):
    """What each request of the first round must be given."""

    name: str
    scenario: MetadataScenario
    lengths: list[int]
    tables: list[list[int]]
    query_ends: list[int]

    def __str__(self) -> str:
        return self.name


EXAMPLES = [
    Example("the contract's example", CONTRACT_EXAMPLE, [21, 146], [[1], [11, 12]], [16, 32]),
    Example("extend fills a page", scenario("NONE", "extend", 1, SMALL, Request(0, new_tokens=16)), [16], [[1]], [16]),
    Example(
        "extend goes one past a page",
        scenario("NONE", "extend", 1, SMALL, Request(0, new_tokens=17)),
        [17],
        [[1, 2]],
        [17],
    ),
    Example(
        "extends over cached prefixes",
        scenario("NONE", "extend", 1, SMALL, Request(16, new_tokens=1), Request(3, row=2, new_tokens=5)),
        [17, 8],
        [[1, 2], [5]],
        [1, 6],
    ),
    Example(
        "extend reaches the context end",
        scenario("NONE", "extend", 1, SMALL, Request(31, row=4, new_tokens=1)),
        [32],
        [[13, 14]],
        [1],
    ),
    Example("decode of the first token", scenario("NONE", "decode", 1, SMALL, Request(0)), [1], [[1]], [1]),
    Example("decode fills a page", scenario("NONE", "decode", 1, SMALL, Request(15)), [16], [[1]], [1]),
    Example("decode opens a page", scenario("NONE", "decode", 1, SMALL, Request(16)), [17], [[1, 2]], [1]),
    Example(
        "decodes in descending rows",
        scenario("NONE", "decode", 1, SMALL, Request(31, row=3), Request(0)),
        [32, 1],
        [[9, 10], [1]],
        [1, 2],
    ),
    Example("verify from nothing", scenario("EAGLE", "target_verify", 4, SMALL, Request(0, row=2)), [4], [[5]], [4]),
    Example("verify fills a page", scenario("EAGLE", "target_verify", 4, SMALL, Request(12)), [16], [[1]], [4]),
    Example("verify opens a page", scenario("EAGLE", "target_verify", 4, SMALL, Request(13)), [17], [[1, 2]], [4]),
    Example(
        "verify past the context", scenario("EAGLE", "target_verify", 4, SMALL, Request(32)), [36], [[1, 2, 3]], [4]
    ),
    Example(
        "verify of one token", scenario("DFLASH", "target_verify", 1, SMALL, Request(16, row=2)), [17], [[5, 6]], [1]
    ),
    Example(
        # A block of 32 reserves so much that a row has 8 pages.
        "verify of 32 tokens",
        scenario("DFLASH", "target_verify", 32, SMALL, Request(0), Request(1, row=2)),
        [32, 33],
        [[1, 2], [9, 10, 11]],
        [32, 64],
    ),
    Example(
        "verify with pages of one slot",
        scenario("DSPARK", "target_verify", 2, SLOTS, Request(3), Request(0, row=2)),
        [5, 2],
        [[1, 2, 3, 4, 5], [18, 19]],
        [2, 4],
    ),
    Example(
        "verify with pages of 64",
        scenario("NGRAM", "target_verify", 8, MIDDLE, Request(56), Request(57, row=2), Request(128, row=3)),
        [64, 65, 136],
        [[1], [5, 6], [9, 10, 11]],
        [8, 16, 24],
    ),
    Example(
        "verify with pages of 128",
        scenario("EAGLE3", "target_verify", 16, LARGE, Request(112), Request(113, row=2)),
        [128, 129],
        [[1], [5, 6]],
        [16, 32],
    ),
    Example(
        "the host's lag changes nothing",
        scenario("STANDALONE", "target_verify", 4, SMALL, Request(12, host_lag=4), Request(13, row=2, host_lag=-4)),
        [16, 17],
        [[1], [5, 6]],
        [4, 8],
    ),
    Example(
        "draft block sees all of itself",
        scenario("DFLASH", "draft_block", 4, SMALL, Request(13), Request(12, row=2)),
        [17, 16],
        [[1, 2], [5]],
        [4, 8],
    ),
    Example("draft decode, step 0", scenario("EAGLE", "draft_decode", 5, SMALL, Request(14)), [15], [[1]], [1]),
    Example("draft decode, step 1", scenario("EAGLE", "draft_decode", 5, SMALL, Request(14), step=1), [16], [[1]], [1]),
    Example(
        "draft decode, step 2", scenario("EAGLE", "draft_decode", 5, SMALL, Request(14), step=2), [17], [[1, 2]], [1]
    ),
    Example(
        "draft extend runs over the block, whatever was accepted",
        scenario("EAGLE", "draft_extend", 4, SMALL, Request(12, new_tokens=1), Request(13, row=2, new_tokens=4)),
        [16, 17],
        [[1], [5, 6]],
        [4, 8],
    ),
    Example(
        "rows share their first page",
        scenario("DFLASH", "target_verify", 4, SHARED, Request(32), Request(29, row=2)),
        [36, 33],
        [[1, 2, 3], [1, 5, 6]],
        [4, 8],
    ),
    Example(
        "pages lie apart",
        scenario("DFLASH", "target_verify", 4, STRIDED, Request(32), Request(29, row=2)),
        [36, 33],
        [[1, 4, 7], [13, 16, 3]],
        [4, 8],
    ),
    Example(
        # Of sixteen pages a stride of 2 would visit only half.
        "a stride that visits too few pages is the next that visits all",
        scenario("DFLASH", "target_verify", 4, replace(SMALL, page_stride=2), Request(32)),
        [36],
        [[1, 4, 7]],
        [4],
    ),
    Example(
        "shared pages lie apart",
        scenario("DFLASH", "target_verify", 4, SHARED_STRIDED, Request(32), Request(29, row=2)),
        [36, 33],
        [[1, 4, 7], [1, 4, 3]],
        [4, 8],
    ),
    Example("an idle rank", MetadataScenario("DFLASH", "target_verify", ((),), "graph", buckets=(1,)), [], [], []),
]


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_is_a_scenario_that_can_be(example: Example) -> None:
    assert why_invalid(example.scenario) == ""


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_kv_lengths_are_those_worked_by_hand(example: Example) -> None:
    actual = [row.kv_length for row in rows(example.scenario, example.scenario.rounds[0])]

    assert example.lengths == actual


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_pages_are_those_worked_by_hand(example: Example) -> None:
    actual = [row.pages for row in rows(example.scenario, example.scenario.rounds[0])]

    assert example.tables == actual


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_query_ends_are_those_worked_by_hand(example: Example) -> None:
    actual = [row.query_end for row in rows(example.scenario, example.scenario.rounds[0])]

    assert example.query_ends == actual


@pytest.mark.parametrize(
    ("prefixes", "width"), [((), 0), ((0,), 1), ((12,), 1), ((13,), 2), ((0, 13), 2), ((32, 0), 3)]
)
def test_the_table_is_as_wide_as_the_longest_request_needs(prefixes: tuple[int, ...], width: int) -> None:
    batch = [Request(prefix, row) for row, prefix in enumerate(prefixes, start=1)]
    actual = table_width(scenario("DFLASH", "target_verify", 4, SMALL), tuple(batch))

    assert width == actual


@pytest.mark.parametrize(
    ("mode", "block", "window", "visible"),
    [
        # The prefix is 20, so a verify of 4 asks from 20 to 23 and sees 24 positions.
        ("target_verify", 4, 0, (0, 24)),
        ("target_verify", 4, 1, (20, 24)),
        ("target_verify", 4, 8, (13, 24)),
        ("target_verify", 4, 20, (1, 24)),
        ("target_verify", 4, 21, (0, 24)),
        ("target_verify", 4, 23, (0, 24)),
        ("target_verify", 4, 24, (0, 24)),
        ("target_verify", 4, 25, (0, 24)),
        ("decode", 1, 8, (13, 21)),
        ("decode", 1, 21, (0, 21)),
        ("draft_extend", 4, 8, (13, 24)),
        ("extend", 1, 8, (13, 26)),
    ],
)
def test_a_window_is_counted_from_the_first_query(
    mode: Mode, block: int, window: int, visible: tuple[int, int]
) -> None:
    request = Request(20, new_tokens=6)
    windowed = MetadataScenario(
        "NONE", mode, ((request,),), draft_tokens=block, window=window, target="swa", pool=SMALL
    )
    (row,) = rows(windowed, (request,))

    assert visible == row.visible


def test_a_window_of_a_draft_step_is_counted_from_that_step() -> None:
    request = Request(20)
    drafting = scenario("EAGLE", "draft_decode", 5, SMALL, request, step=2)
    (row,) = rows(replace(drafting, window=8, target="swa"), (request,))

    assert row.visible == (15, 23)


@pytest.mark.parametrize(
    ("prefixes", "pages"),
    [((0,), []), ((1,), [1]), ((16,), [1]), ((17, 0, 16, 31), [1, 2, 9, 13, 14]), ((0, 31), [5, 6])],
)
def test_prefix_pages_follow_each_other_without_gaps(prefixes: tuple[int, ...], pages: list[int]) -> None:
    batch = [Request(prefix, row, new_tokens=1) for row, prefix in enumerate(prefixes, start=1)]
    actual = prefix_pages(scenario("NONE", "extend", 1, SMALL, *batch), tuple(batch))

    assert pages == actual


@pytest.mark.parametrize(
    ("algorithm", "mode", "block", "device", "host"),
    [
        ("NONE", "extend", 1, 8, 8),
        ("NONE", "decode", 1, 6, 6),
        ("EAGLE", "target_verify", 4, 5, 5),
        ("EAGLE3", "target_verify", 4, 5, 5),
        ("STANDALONE", "target_verify", 4, 5, 5),
        ("NGRAM", "target_verify", 4, 5, 5),
        ("DFLASH", "target_verify", 4, 5, 9),
        ("DSPARK", "target_verify", 4, 5, 9),
        ("DFLASH", "draft_block", 4, 5, 9),
        ("DSPARK", "draft_block", 4, 5, 9),
        ("EAGLE", "draft_decode", 4, 5, 5),
        ("EAGLE", "draft_extend", 4, 9, 9),
    ],
)
def test_a_prefix_of_5_is_published_as_the_algorithm_has_it(
    algorithm: Algorithm, mode: Mode, block: int, device: int, host: int
) -> None:
    request = Request(5, new_tokens=3)
    published = scenario(algorithm, mode, block, SMALL, request)

    assert (device, host) == (device_length(published, request), host_length(published, request))


def test_the_contracts_example_is_published_with_the_block_for_the_host() -> None:
    published = [host_length(CONTRACT_EXAMPLE, request) for request in CONTRACT_EXAMPLE.rounds[0]]

    assert published == [21, 146]


@pytest.mark.parametrize(("algorithm", "lag", "host"), [("DFLASH", 2, 11), ("DFLASH", -2, 7), ("EAGLE", 2, 7)])
def test_the_lag_is_the_hosts_alone(algorithm: Algorithm, lag: int, host: int) -> None:
    request = Request(5, host_lag=lag)
    published = scenario(algorithm, "target_verify", 4, SMALL, request)

    assert (5, host) == (device_length(published, request), host_length(published, request))


@pytest.mark.parametrize(
    ("pool", "block", "prefix", "bound"),
    [
        (SLOTS, 2, 5, 9),
        (SMALL, 4, 0, 16),
        (SMALL, 4, 8, 16),
        (SMALL, 4, 9, 32),
        (LARGE, 16, 96, 128),
        (LARGE, 16, 97, 256),
        (LARGE, 16, 256, 384),
    ],
)
def test_a_reserved_bound_is_two_blocks_more_and_whole_pages(pool: Pool, block: int, prefix: int, bound: int) -> None:
    request = Request(prefix)
    reserved = scenario("DFLASH", "target_verify", block, pool, request)
    view: HostView = "bound"

    assert bound == host_length(replace(reserved, host_view=view), request)


@pytest.mark.parametrize(
    ("page", "window_page"), [(1, 16), (2, 15), (8, 9), (16, 1)], ids=["first", "second", "middle", "last"]
)
def test_the_window_pool_is_the_full_pool_from_the_other_end(page: int, window_page: int) -> None:
    pages = PageMap(scenario("DFLASH", "target_verify", 4, SMALL))

    assert window_page == pages.swa_page(page)


@pytest.mark.parametrize(
    ("row", "position", "slot"), [(1, 0, 16), (1, 15, 31), (1, 16, 64), (2, 0, 208), (2, 33, 49), (2, 47, 63)]
)
def test_a_slot_lies_in_its_page(row: int, position: int, slot: int) -> None:
    pages = PageMap(scenario("DFLASH", "target_verify", 4, STRIDED))

    assert slot == pages.slot(row, position)


pools = st.builds(
    Pool,
    page_size=st.sampled_from((1, 16, 64, 128)) | st.integers(1, 130),
    context_length=st.integers(1, 300),
    rows=st.integers(2, 6),
    page_stride=st.integers(1, 50),
    shared_pages=st.integers(0, 5),
)
pooled = st.builds(partial(scenario, "DFLASH", "target_verify"), st.integers(1, 32), pools)


@SAME
@given(pooled=pooled)
def test_the_page_map_is_a_bijection(pooled: MetadataScenario) -> None:
    pages = PageMap(pooled)
    shared = [pages.page(1, index) for index in range(pages.shared)]
    own = [
        pages.page(row, index)
        for row in range(1, pooled.pool.rows + 1)
        for index in range(pages.shared, pages.pages_per_row)
    ]

    assert list(range(1, pages.pages + 1)) == sorted(shared + own)


@SAME
@given(pooled=pooled)
def test_two_rows_overlap_in_the_shared_pages_alone(pooled: MetadataScenario) -> None:
    pages = PageMap(pooled)
    first, second = ([pages.page(row, index) for index in range(pages.pages_per_row)] for row in (1, 2))

    assert set(first[: pages.shared]) == set(first) & set(second)


@SAME
@given(pooled=pooled, row=st.integers(1, 2), data=st.data())
def test_a_slot_divided_by_the_page_size_is_its_page(pooled: MetadataScenario, row: int, data: st.DataObject) -> None:
    pages = PageMap(pooled)
    position = data.draw(st.integers(0, pooled.capacity - 1), label="position")

    assert pages.page(row, position // pages.page_size) == pages.slot(row, position) // pages.page_size


@SAME
@given(pooled=pooled)
def test_every_position_of_a_row_has_a_slot_of_its_own(pooled: MetadataScenario) -> None:
    pages = PageMap(pooled)
    slots = {pages.slot(2, position) for position in range(pooled.capacity)}

    assert pooled.capacity == len(slots)


@SAME
@given(pooled=pooled)
def test_every_page_has_a_window_page_of_its_own(pooled: MetadataScenario) -> None:
    pages = PageMap(pooled)
    windowed = {pages.swa_page(page) for page in range(1, pages.pages + 1)}

    assert set(range(1, pages.pages + 1)) == windowed


@SAME
@given(pooled=pooled, data=st.data())
def test_a_longer_table_continues_a_shorter_one(pooled: MetadataScenario, data: st.DataObject) -> None:
    pages = PageMap(pooled)
    length = data.draw(st.integers(0, pooled.capacity - pages.page_size), label="length")
    shorter, longer = pages.table(2, length), pages.table(2, length + pages.page_size)

    assert shorter == longer[:-1]


@SAME
@given(pooled=pooled)
def test_the_grid_is_every_page_of_every_row(pooled: MetadataScenario) -> None:
    pages = PageMap(pooled)
    one_by_one = [
        [pages.page(row, index) for index in range(pages.pages_per_row)] for row in range(1, pooled.pool.rows + 1)
    ]

    assert one_by_one == pages.grid(pages.pages_per_row).tolist()


def test_states_of_a_verify_are_those_of_the_rows_and_its_steps_follow_the_batch() -> None:
    """Pool of four rows: row 3 holds slot 2, row 1 slot 4; a block of 2 for each."""
    verify = MetadataScenario("DFLASH", "target_verify", (), target="gdn", draft_tokens=2)

    found = states(verify, (Request(prefix=9, row=3), Request(prefix=1, row=1)))

    assert found == [State(2, (0, 2), range(2)), State(4, (2, 4), range(2, 4))]


def test_states_of_an_extend_have_the_rows_of_their_own_tokens_and_no_steps() -> None:
    extend = MetadataScenario("NONE", "extend", (), target="gdn")

    found = states(extend, (Request(prefix=0, new_tokens=3), Request(prefix=128, row=4, new_tokens=5)))

    assert found == [State(4, (0, 3), range(0)), State(1, (3, 8), range(0))]
