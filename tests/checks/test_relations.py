"""Metamorphic checks: dependence on order, on page numbers, on the executor and on earlier rounds is found."""

import pytest
from msgspec.structs import replace

from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, PASSED
from harness.checks.registry import CHECKS
from harness.scenario import GateScenario, Request, Scenario
from harness.scenario.observation import Observation
from tests.ideal import CONTRACT_EXAMPLE, Planted, judge, observe, raises, says

REQUEST_ORDER = CHECKS["request-order"]
PAGE_RELABELLING = CHECKS["page-relabelling"]
EAGER_EQUALS_REPLAY = CHECKS["eager-equals-replay"]
REPLAY_FRESH = CHECKS["replay-fresh"]

REPLAY = replace(CONTRACT_EXAMPLE, executor="graph", buckets=(2,))
#: The second batch is replayed after the first.
REPLAYS = replace(REPLAY, rounds=((Request(5),), (Request(130, row=2),)), buckets=(1,))
#: The host is three tokens ahead of the second request.
AHEAD = replace(REPLAY, rounds=((Request(5), Request(130, row=2, host_lag=3)),))
SINGLE = replace(CONTRACT_EXAMPLE, rounds=((Request(5),),))

PLANTED = [
    Planted(
        "a length that depends on the place in the batch",
        REQUEST_ORDER,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [147, 21]),
        "order-matters",
        "seq_lens_cpu_int=[21, 146], but [21, 147] with the requests in reverse order",
        place=1,
    ),
    Planted(
        "a table that stays in the first order",
        REQUEST_ORDER,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0, 0], [11, 12, 0]]),
        "order-matters",
        "block_tables=[[1, 0], [11, 12]], but [[11, 0], [1, 0]] with the requests in reverse order",
        place=1,
    ),
    Planted(
        "a table whose width depends on the first request",
        REQUEST_ORDER,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1], [11]]),
        "order-matters",
        "block_tables=[[1], [11]], but [[1, 0], [11, 12]] with the requests in reverse order",
    ),
    Planted(
        "lengths of a graph that stay in the first order",
        REQUEST_ORDER,
        REPLAY,
        says("host_lengths", [21, 146]),
        "order-matters",
        "host_lengths=[21, 146], but [146, 21] with the requests in reverse order",
        place=1,
    ),
    Planted(
        # 40 pages; the stride becomes 3, which turns page 11 into 1 + 30 and page 12 into 1 + 33.
        "a table with the labels of before",
        PAGE_RELABELLING,
        CONTRACT_EXAMPLE,
        says("block_tables", [[1, 0, 0], [11, 12, 0]]),
        "labels-matter",
        "block_tables[0]=[1] with the pages relabelled, but should be [2]",
        place=1,
    ),
    Planted(
        "a length that depends on the page",
        PAGE_RELABELLING,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [21, 147]),
        "labels-matter",
        "seq_lens_cpu_int is [21, 147] with the pages relabelled, but [21, 146] before",
        place=1,
    ),
    Planted(
        "the block added again in eager alone",
        EAGER_EQUALS_REPLAY,
        REPLAY,
        says("seq_lens_cpu_int", [37, 162]),
        "lengths-differ",
        "host_lengths=[21, 146] at replay, but seq_lens_cpu_int=[37, 162] in eager",
        place=1,
    ),
    Planted(
        "the block missing at replay alone",
        EAGER_EQUALS_REPLAY,
        REPLAY,
        says("host_lengths", [5, 130]),
        "lengths-differ",
        "host_lengths=[5, 130] at replay, but seq_lens_cpu_int=[21, 146] in eager",
    ),
    Planted(
        "fewer lengths at replay",
        EAGER_EQUALS_REPLAY,
        REPLAY,
        says("host_lengths", [21]),
        "lengths-differ",
        "host_lengths=[21] at replay, but seq_lens_cpu_int=[21, 146] in eager",
    ),
    Planted(
        "other pages at replay",
        EAGER_EQUALS_REPLAY,
        REPLAY,
        says("block_tables", [[1, 0], [11, 13]]),
        "pages-differ",
        "block_tables[1]=[11, 13] at replay, but [11, 12] in eager",
    ),
    Planted(
        "a replay that follows the device and an eager path that follows the host",
        EAGER_EQUALS_REPLAY,
        AHEAD,
        says("seq_lens_cpu_int", [21, 149]),
        "views-differ",
        "host_lengths=[21, 146] at replay, but seq_lens_cpu_int=[21, 149] in eager",
        place=1,
    ),
    Planted(
        "other pages at replay, with a host that is ahead",
        EAGER_EQUALS_REPLAY,
        AHEAD,
        says("block_tables", [[1, 0], [11, 13]]),
        "views-differ",
        "block_tables[1]=[11, 13] at replay, but [11, 12] in eager",
    ),
    Planted(
        "a length of neither view, with a host that is ahead",
        EAGER_EQUALS_REPLAY,
        AHEAD,
        says("host_lengths", [21, 165]),
        "lengths-differ",
        "host_lengths=[21, 165] at replay, but seq_lens_cpu_int=[21, 146] in eager",
    ),
    Planted(
        "lengths left over from the round before",
        REPLAY_FRESH,
        REPLAYS,
        says("host_lengths", [21], build=1),
        "left-over",
        "after earlier rounds host_lengths is [21], but was [146] when replayed first",
    ),
    Planted(
        "device lengths left over from the round before",
        REPLAY_FRESH,
        REPLAYS,
        says("seq_lens", [21], build=1),
        "left-over",
        "after earlier rounds seq_lens is [21], but was [146] when replayed first",
    ),
    Planted(
        "pages left over from the round before",
        REPLAY_FRESH,
        REPLAYS,
        says("block_tables", [[1, 12, 0]], build=1),
        "left-over",
        "after earlier rounds block_tables is [[1, 12]], but was [[11, 12]] when replayed first",
    ),
    Planted(
        "lengths left over from the capture",
        REPLAY_FRESH,
        REPLAYS,
        says("host_lengths", [16]),
        "left-over",
        "after earlier rounds host_lengths is [146], but was [16] when replayed first",
        place=1,
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_the_order_variant_reverses_every_round() -> None:
    (variant,) = REQUEST_ORDER.variants(REPLAYS)
    (turned,) = REQUEST_ORDER.variants(REPLAY)

    assert variant == REPLAYS
    assert turned.rounds == ((Request(130, row=2), Request(5)),)


def test_the_relabelled_variant_has_other_pages() -> None:
    (variant,) = PAGE_RELABELLING.variants(CONTRACT_EXAMPLE)

    assert judge(CHECKS["block-table"], variant, says("block_tables", [[1, 0], [11, 12]])) != PASSED
    assert variant.rounds == CONTRACT_EXAMPLE.rounds


def test_the_eager_twin_has_no_idle_rank() -> None:
    (twin,) = EAGER_EQUALS_REPLAY.variants(replace(REPLAYS, rounds=(*REPLAYS.rounds, ()), host_dtype="int32"))

    assert twin == replace(REPLAYS, executor="eager", buckets=())


def test_pages_that_no_length_reaches_may_differ() -> None:
    behind = replace(REPLAY, rounds=((Request(120, host_lag=-10),),), buckets=(1,))
    replayed, eager = observe([behind, *EAGER_EQUALS_REPLAY.variants(behind)])
    short = [says("host_lengths", [126])(replayed), says("seq_lens_cpu_int", [126])(eager)]

    def with_other(table: list[int]) -> list[Observation]:
        return [short[0], says("block_tables", [table])(short[1])]

    assert EAGER_EQUALS_REPLAY.outcome(behind, short) == PASSED
    assert EAGER_EQUALS_REPLAY.outcome(behind, with_other([1, 99])) == PASSED
    assert EAGER_EQUALS_REPLAY.outcome(behind, with_other([99, 2])).findings


def test_entries_past_the_table_that_is_read_may_be_left_over() -> None:
    assert judge(REPLAY_FRESH, REPLAYS, says("block_tables", [[11, 12, 99]], build=1)) == PASSED


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    ("check", "scenario"),
    [(REQUEST_ORDER, CONTRACT_EXAMPLE), (PAGE_RELABELLING, CONTRACT_EXAMPLE), (EAGER_EQUALS_REPLAY, REPLAY)],
    ids=["request-order", "page-relabelling", "eager-equals-replay"],
)
def test_nothing_is_compared_where_one_side_raised(check: Check, scenario: Scenario, place: int) -> None:
    assert judge(check, scenario, raises("RuntimeError: no"), place) == NOT_RUN


@pytest.mark.parametrize("place", [0, 1])
def test_no_replay_is_fresh_or_left_over_where_its_last_round_raised(place: int) -> None:
    assert judge(REPLAY_FRESH, REPLAYS, raises("RuntimeError: no", build=-1), place) == NOT_RUN


def test_rounds_that_both_sides_built_are_compared_when_another_raised() -> None:
    both = replace(CONTRACT_EXAMPLE, rounds=CONTRACT_EXAMPLE.rounds * 2)

    def plant(observed: Observation) -> Observation:
        return says("seq_lens_cpu_int", [146, 22], build=1)(raises("RuntimeError: no")(observed))

    assert judge(REQUEST_ORDER, both, plant, place=1).findings


@pytest.mark.parametrize(
    ("check", "scenario"),
    [
        (REQUEST_ORDER, SINGLE),
        (EAGER_EQUALS_REPLAY, CONTRACT_EXAMPLE),
        (EAGER_EQUALS_REPLAY, replace(REPLAY, rounds=((),))),
        (EAGER_EQUALS_REPLAY, replace(REPLAY, host_view="absent")),
        (REPLAY_FRESH, REPLAY),
        (REPLAY_FRESH, replace(REPLAYS, executor="eager", buckets=())),
        (REPLAY_FRESH, GateScenario("npu")),
    ],
    ids=["one request", "eager", "idle", "no host lengths", "one round", "eager rounds", "gate"],
)
def test_a_relation_does_not_apply_where_there_is_nothing_to_compare(check: Check, scenario: Scenario) -> None:
    assert not check.applies(scenario)
