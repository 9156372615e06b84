"""Lengths: every way in which a length has been wrong is found, named by its value and told from the others."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.checks.finding import NOT_RUN, PASSED, Verdict
from harness.checks.lengths import length_fields
from harness.checks.registry import CHECKS
from harness.scenario import MetadataScenario, Request
from harness.scenario.observation import Observation
from harness.scenario.strategies import Cell, scenarios
from tests.ideal import CELLS, CONTRACT_EXAMPLE, SAME, Planted, judge, observation, says

KV_LENGTHS = CHECKS["kv-lengths"]
QUERY_LENGTHS = CHECKS["query-lengths"]
HOST_VIEW = CHECKS["host-view"]
HOST_BOUND = CHECKS["host-bound"]

EAGLE = replace(CONTRACT_EXAMPLE, algorithm="EAGLE")
#: A bucket of four: two of its rows pad.
REPLAY = replace(CONTRACT_EXAMPLE, executor="graph", buckets=(4,))
#: The second batch is replayed after the first.
REPLAYS = replace(REPLAY, rounds=((Request(5),), (Request(130, row=2),)), buckets=(1,))
HOSTLESS = replace(EAGLE, host_view="absent")
EXTEND = MetadataScenario("NONE", "extend", ((Request(5, new_tokens=3), Request(0, row=2, new_tokens=7)),))
DECODE = MetadataScenario("NONE", "decode", ((Request(5), Request(130, row=2)),))
DRAFT = MetadataScenario("EAGLE", "draft_decode", ((Request(5),),), draft_tokens=5, step=2)
DRAFT_EXTEND = MetadataScenario("EAGLE", "draft_extend", ((Request(5, new_tokens=2),),), draft_tokens=5)
#: The host is 3 tokens ahead for the first request, 4 behind for the second.
LAGGING = replace(CONTRACT_EXAMPLE, rounds=((Request(5, host_lag=3), Request(130, row=2, host_lag=-4)),))
#: Measured on 0.5.15 to 0.5.17: the device counts 111, the host 113, and the block crosses the page end for it alone.
CROSSING = replace(CONTRACT_EXAMPLE, rounds=((Request(111, host_lag=2),),))
BOUND = replace(CONTRACT_EXAMPLE, host_view="bound")


PLANTED = [
    Planted(
        "the block added again",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [37, 162]),
        "block-added-again",
        "seq_lens_cpu_int[0]=37, but should be 21",
    ),
    Planted(
        "the block added again to one request",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [21, 162]),
        "block-added-again",
        "seq_lens_cpu_int[1]=162, but should be 146",
    ),
    Planted(
        "the block missing",
        KV_LENGTHS,
        EAGLE,
        says("seq_lens_cpu_int", [5, 130]),
        "block-missing",
        "seq_lens_cpu_int[0]=5, but should be 21",
    ),
    Planted(
        "one too many",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [22, 147]),
        "too-long",
        "seq_lens_cpu_int[0]=22, but should be 21",
    ),
    Planted(
        "one too few",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [21, 145]),
        "too-short",
        "seq_lens_cpu_int[1]=145, but should be 146",
    ),
    Planted(
        "swapped rows",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [146, 21]),
        "too-long",
        "seq_lens_cpu_int[0]=146, but should be 21",
    ),
    Planted(
        "a request without a length",
        KV_LENGTHS,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [21]),
        "rows-missing",
        "seq_lens_cpu_int has 1 lengths for 2 requests",
    ),
    Planted(
        "a captured graph that is told the lengths of the round before",
        KV_LENGTHS,
        REPLAYS,
        says("host_lengths", [21], build=1),
        "too-short",
        "host_lengths[0]=21, but should be 146",
    ),
    Planted(
        "a captured graph whose device lengths lack the block",
        KV_LENGTHS,
        REPLAY,
        says("seq_lens", [5, 130, 0, 0]),
        "block-missing",
        "seq_lens[0]=5, but should be 21",
    ),
    Planted(
        "the block missing where the host has no lengths",
        KV_LENGTHS,
        HOSTLESS,
        says("seq_lens", [5, 130]),
        "block-missing:absent-host",
        "seq_lens[0]=5, but should be 21",
    ),
    Planted(
        "an extend that counts the prefix alone",
        KV_LENGTHS,
        EXTEND,
        says("seq_lens_cpu_int", [5, 0]),
        "too-short",
        "seq_lens_cpu_int[0]=5, but should be 8",
    ),
    Planted(
        "a decode that does not count its own token",
        KV_LENGTHS,
        DECODE,
        says("seq_lens", [5, 130]),
        "too-short",
        "seq_lens[0]=5, but should be 6",
    ),
    Planted(
        "a draft step that counts as the step before",
        KV_LENGTHS,
        DRAFT,
        says("seq_lens_cpu_int", [7]),
        "too-short",
        "seq_lens_cpu_int[0]=7, but should be 8",
    ),
    Planted(
        "a draft extend that counts the accepted tokens alone",
        KV_LENGTHS,
        DRAFT_EXTEND,
        says("seq_lens_cpu_int", [7]),
        "too-short",
        "seq_lens_cpu_int[0]=7, but should be 10",
    ),
    Planted(
        "query lengths that are not cumulative",
        QUERY_LENGTHS,
        CONTRACT_EXAMPLE,
        says("actual_seq_lengths_q", [16, 16]),
        "cumulative-wrong",
        "actual_seq_lengths_q=[16, 16], but should begin [16, 32], increase and have 2 rows",
    ),
    Planted(
        "query lengths that begin with 0",
        QUERY_LENGTHS,
        CONTRACT_EXAMPLE,
        says("actual_seq_lengths_q", [0, 16, 32]),
        "cumulative-wrong",
        "actual_seq_lengths_q=[0, 16, 32], but should begin [16, 32], increase and have 2 rows",
    ),
    Planted(
        "query lengths of a padded bucket that stand still",
        QUERY_LENGTHS,
        REPLAY,
        says("actual_seq_lengths_q", [16, 32, 32, 32]),
        "cumulative-wrong",
        "actual_seq_lengths_q=[16, 32, 32, 32], but should begin [16, 32], increase and have 4 rows",
    ),
    Planted(
        "a request without query rows",
        QUERY_LENGTHS,
        CONTRACT_EXAMPLE,
        says("actual_seq_lengths_q", [16]),
        "cumulative-wrong",
        "actual_seq_lengths_q=[16], but should begin [16, 32], increase and have 2 rows",
    ),
    Planted(
        "query lengths of an extend in the order of the rows swapped",
        QUERY_LENGTHS,
        EXTEND,
        says("seq_lens_list_cumsum", [7, 10]),
        "cumulative-wrong",
        "seq_lens_list_cumsum=[7, 10], but should begin [3, 10], increase and have 2 rows",
    ),
    Planted(
        "a length of neither view",
        HOST_VIEW,
        LAGGING,
        says("seq_lens_cpu_int", [22, 146]),
        "too-short",
        "seq_lens_cpu_int[0]=22, but should be 21 or 24",
    ),
    Planted(
        "the block added again to the host's view",
        HOST_VIEW,
        LAGGING,
        says("seq_lens_cpu_int", [40, 158]),
        "block-added-again",
        "seq_lens_cpu_int[0]=40, but should be 21 or 24",
    ),
    Planted(
        "swapped rows under lag",
        HOST_VIEW,
        LAGGING,
        says("seq_lens_cpu_int", [142, 24]),
        "too-long",
        "seq_lens_cpu_int[0]=142, but should be 21 or 24",
    ),
    Planted(
        "a table one page short of the host's view",
        HOST_VIEW,
        CROSSING,
        lambda observed: says("block_tables", [[1]])(says("seq_lens_cpu_int", [129])(observed)),
        "too-narrow",
        "block_tables has 1 columns, but seq_lens_cpu_int[0]=129 needs 2",
    ),
    Planted(
        "the page of another request under lag",
        HOST_VIEW,
        LAGGING,
        says("block_tables", [[11, 0, 0], [11, 12, 0]]),
        "page-wrong",
        "block_tables[0, 0]=11, but should be 1",
    ),
    Planted(
        "a reserved bound used as the length",
        HOST_BOUND,
        BOUND,
        says("seq_lens_cpu_int", [128, 256]),
        "bound-used-as-length:bound-host",
        "seq_lens_cpu_int[0]=128, but should be 21",
    ),
    Planted(
        "a length without the block beside a reserved bound",
        HOST_BOUND,
        BOUND,
        says("seq_lens_cpu_int", [5, 130]),
        "too-short:bound-host",
        "seq_lens_cpu_int[0]=5, but should be 21",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize("lengths", [[21, 146], [24, 142], [21, 142]], ids=["device", "host", "mixed"])
def test_either_view_passes_under_lag(lengths: list[int]) -> None:
    assert judge(HOST_VIEW, LAGGING, says("seq_lens_cpu_int", lengths)) == PASSED


def test_one_fault_has_one_fingerprint_whatever_the_lengths() -> None:
    first = judge(KV_LENGTHS, CONTRACT_EXAMPLE, says("seq_lens_cpu_int", [37, 162]))
    longer = replace(CONTRACT_EXAMPLE, rounds=((Request(300, row=3),),), draft_tokens=8)
    second = judge(KV_LENGTHS, longer, says("seq_lens_cpu_int", [316]))

    assert first.findings[0].fingerprint == second.findings[0].fingerprint


def test_relatives_of_eagle_share_its_fingerprints() -> None:
    eagle = judge(KV_LENGTHS, EAGLE, says("seq_lens_cpu_int", [5, 130]))
    eagle3 = judge(KV_LENGTHS, replace(EAGLE, algorithm="EAGLE3"), says("seq_lens_cpu_int", [5, 130]))

    assert eagle.findings[0].fingerprint == eagle3.findings[0].fingerprint


def test_another_executor_is_another_fingerprint() -> None:
    eager = judge(KV_LENGTHS, CONTRACT_EXAMPLE, says("seq_lens_cpu_int", [37, 162]))
    graph = judge(KV_LENGTHS, REPLAY, says("host_lengths", [37, 162, 0, 0]))

    assert eager.findings[0].fingerprint == "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again"
    assert graph.findings[0].fingerprint == "kv-lengths:host_lengths:DFLASH:graph:target_verify:block-added-again"


def test_lengths_without_a_host_are_another_fingerprint() -> None:
    (found,) = judge(KV_LENGTHS, HOSTLESS, says("seq_lens", [5, 130])).findings

    assert found.fingerprint == "kv-lengths:seq_lens:EAGLE:eager:target_verify:block-missing:absent-host"


def test_a_finding_says_in_which_scenario() -> None:
    (found,) = judge(KV_LENGTHS, CONTRACT_EXAMPLE, says("seq_lens_cpu_int", [37, 162])).findings

    assert found.message.endswith(" [eager, DFLASH, target_verify, prefix=5, block=16, page=128]")
    assert found.scenario == CONTRACT_EXAMPLE


@pytest.mark.parametrize(
    ("lengths", "meaning"), [([37, 162], "slots that nobody has written"), ([5, 130], "does not see tokens")]
)
def test_a_finding_says_what_a_user_would_see(lengths: list[int], meaning: str) -> None:
    (found,) = judge(KV_LENGTHS, CONTRACT_EXAMPLE, says("seq_lens_cpu_int", lengths)).findings

    assert meaning in found.meaning


def test_lengths_of_padded_rows_are_not_the_business_of_kv_lengths() -> None:
    assert judge(KV_LENGTHS, REPLAY, says("host_lengths", [21, 146, 16, 16])) == PASSED


def test_query_lengths_that_a_release_never_builds_are_not_judged() -> None:
    def never_built(observed: Observation) -> Observation:
        (seen,) = observed.seen
        fields = {name: array for name, array in seen.fields.items() if name != "actual_seq_lengths_q"}
        return Observation((replace(seen, fields=fields, never_built=("actual_seq_lengths_q",)),))

    assert judge(QUERY_LENGTHS, CONTRACT_EXAMPLE, never_built) == NOT_RUN


@pytest.mark.parametrize(
    ("scenario", "fields"),
    [
        (CONTRACT_EXAMPLE, ("seq_lens_cpu_int",)),
        (REPLAY, ("host_lengths", "seq_lens")),
        (HOSTLESS, ("seq_lens",)),
        (EXTEND, ("seq_lens_cpu_int", "seq_lens")),
        (DECODE, ("seq_lens_cpu_int", "seq_lens")),
        (DRAFT, ("seq_lens_cpu_int",)),
    ],
)
def test_the_lengths_judged_are_those_that_an_operator_is_bound_to(
    scenario: MetadataScenario, fields: tuple[str, ...]
) -> None:
    assert fields == length_fields(scenario)


@pytest.mark.parametrize("scenario", [LAGGING, BOUND], ids=["lagging", "bound"])
def test_exact_lengths_are_not_asked_for_where_the_host_does_not_know_them(scenario: MetadataScenario) -> None:
    assert not KV_LENGTHS.applies(scenario)


def test_the_reserved_bound_is_judged_only_where_a_release_can_publish_one() -> None:
    assert HOST_BOUND.needs == "absent-host"
    assert not HOST_BOUND.applies(CONTRACT_EXAMPLE)


def has_exact_lengths(scenario: MetadataScenario) -> bool:
    return KV_LENGTHS.applies(scenario) and any(scenario.rounds)


@pytest.mark.parametrize("cell", CELLS, ids=str)
@settings(SAME, max_examples=4)
@given(data=st.data())
def test_a_wrong_length_of_any_request_is_found(cell: Cell, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(cell).filter(has_exact_lengths), label="scenario")
    number = data.draw(st.sampled_from([k for k, batch in enumerate(scenario.rounds) if batch]), label="round")
    row = data.draw(st.integers(0, len(scenario.rounds[number]) - 1), label="row")
    name = data.draw(st.sampled_from(length_fields(scenario)), label="field")
    lengths = observation(scenario).seen[number].fields[name].values.tolist()
    lengths[row] += data.draw(st.sampled_from([-1, 1, scenario.draft_tokens, -scenario.draft_tokens]), label="error")

    assert judge(KV_LENGTHS, scenario, says(name, lengths, number)).verdict is Verdict.FAIL
