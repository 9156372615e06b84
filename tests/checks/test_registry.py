"""What holds for every check: a control passes, a fault is planted, and what cannot be judged is never a verdict."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from harness.campaign.trial import Trial
from harness.checks import (
    accept,
    attention,
    draws,
    gate,
    inputs,
    lengths,
    prefix,
    relations,
    session_answers,
    session_lengths,
    session_server,
    states,
    tables,
    window,
)
from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, PASSED, Outcome, Verdict, unknown
from harness.checks.registry import CHECKS, GROUPS, checks_of
from harness.checks.wording import where
from harness.errors import UsageError
from harness.scenario import MetadataScenario, Scenario, SessionScenario
from harness.scenario.axes import AXES
from harness.scenario.observation import Fault, Observation, Seen
from harness.scenario.session_strategies import TRAINED, Server, servers
from harness.scenario.strategies import Cell
from tests.checks import (
    test_accept,
    test_attention,
    test_draws,
    test_gate,
    test_inputs,
    test_lengths,
    test_prefix,
    test_relations,
    test_session_answers,
    test_session_lengths,
    test_session_server,
    test_states,
    test_tables,
    test_window,
)
from tests.ideal import (
    CAPABILITIES,
    CELLS,
    CONTRACT_EXAMPLE,
    Planted,
    drawn,
    drawn_sessions,
    judge,
    observe,
    raises,
)

MIRRORED = (
    (accept, test_accept),
    (attention, test_attention),
    (draws, test_draws),
    (gate, test_gate),
    (inputs, test_inputs),
    (lengths, test_lengths),
    (prefix, test_prefix),
    (relations, test_relations),
    (session_answers, test_session_answers),
    (session_lengths, test_session_lengths),
    (session_server, test_session_server),
    (states, test_states),
    (tables, test_tables),
    (window, test_window),
)
PLANTED: list[Planted] = [fault for _, tests in MIRRORED for fault in tests.PLANTED]
#: A scenario that each check can judge.
EXAMPLE: dict[str, Scenario] = {fault.check.id: fault.scenario for fault in reversed(PLANTED)}

#: The fields without which a check knows nothing, and the observation in which each is looked for.
NEEDED = (
    ("kv-lengths", "seq_lens_cpu_int", 0),
    ("query-lengths", "actual_seq_lengths_q", 0),
    ("host-view", "seq_lens_cpu_int", 0),
    ("host-view", "block_tables", 0),
    ("host-bound", "seq_lens_cpu_int", 0),
    ("block-table", "block_tables", 0),
    ("padded-rows", "block_tables", 0),
    ("padded-rows", "host_lengths", 0),
    ("padded-rows", "seq_lens", 0),
    ("request-order", "seq_lens_cpu_int", 0),
    ("request-order", "block_tables", 1),
    ("page-relabelling", "block_tables", 1),
    ("page-relabelling", "seq_lens_cpu_int", 1),
    ("eager-equals-replay", "host_lengths", 0),
    ("eager-equals-replay", "block_tables", 0),
    ("eager-equals-replay", "seq_lens_cpu_int", 1),
    ("state-slots", "mamba_cache_indices", 0),
    ("state-queries", "query_start_loc", 0),
    ("state-steps", "ssm_state_indices", 0),
    ("window-table", "block_tables_swa", 0),
    ("window-mask", "swa_visible", 0),
    ("mla-prefix", "prefix_lens", 0),
    ("mla-prefix", "flatten_prefix_block_tables", 0),
)
#: Checks that need no field in particular: they compare whatever there is, or look at something else.
NEED_NONE = {
    "builds",
    "inputs-unchanged",
    "idempotent",
    "replay-fresh",
    *(check.id for check in attention.CHECKS),
}

METADATA = [check for check in CHECKS.values() if isinstance(EXAMPLE[check.id], MetadataScenario)]
SESSIONS = [check for check in CHECKS.values() if isinstance(EXAMPLE[check.id], SessionScenario)]
SERVERS = [server for server in servers(CAPABILITIES, [axis.name for axis in AXES], 2) if server.target == TRAINED]


def identity(check: Check) -> str:
    return check.id


def test_every_check_has_a_planted_fault_and_with_it_a_control() -> None:
    assert set(CHECKS) == {fault.check.id for fault in PLANTED}


@pytest.mark.parametrize(("module", "tests"), MIRRORED, ids=[module.__name__ for module, _ in MIRRORED])
def test_the_checks_of_a_module_are_tested_in_its_mirror(module: object, tests: object) -> None:
    checks, planted = vars(module)["CHECKS"], vars(tests)["PLANTED"]

    assert {check.id for check in checks} == {fault.check.id for fault in planted}


def test_every_module_of_checks_is_mirrored_and_no_id_is_used_twice() -> None:
    assert len(CHECKS) == sum(len(module.CHECKS) for module, _ in MIRRORED)


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_fault_is_planted_where_its_check_speaks_and_passes_without(fault: Planted) -> None:
    assert fault.check.applies(fault.scenario)
    assert judge(fault.check, fault.scenario) == PASSED


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_an_ideal_subject_passes_every_check_on_drawn_scenarios(cell: Cell) -> None:
    for scenario in drawn(cell)[:10]:
        outcomes = {check.id: judge(check, scenario) for check in METADATA if check.applies(scenario)}

        assert outcomes == dict.fromkeys(outcomes, PASSED), scenario


@pytest.mark.parametrize("server", SERVERS, ids=str)
def test_an_ideal_server_passes_every_check_that_can_speak_on_drawn_sessions(server: Server) -> None:
    passed: set[str] = set()
    for scenario in drawn_sessions(server):
        for check in SESSIONS:
            outcome = judge(check, scenario)
            passed |= {check.id} if outcome == PASSED else set()

            assert outcome in (PASSED, NOT_RUN), (check.id, scenario)

    of_verifies = {"session-progress", "session-acceptance"} if server.algorithm == "NONE" else set()
    assert passed == {check.id for check in SESSIONS} - of_verifies


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_every_cell_has_lengths_and_pages_that_are_judged(cell: Cell) -> None:
    applied = {check.id for scenario in drawn(cell) for check in METADATA if check.applies(scenario)}

    assert {"kv-lengths", "query-lengths", "block-table"} <= applied


@pytest.mark.parametrize("check", CHECKS.values(), ids=identity)
@pytest.mark.parametrize("cause", ["unsupported", "driver", "crash", "hang", "protocol"])
def test_a_fault_of_the_subject_is_unknown(check: Check, cause: str) -> None:
    scenario = EXAMPLE[check.id]
    number = len(Trial.needed(check, scenario)) - 1

    def plant(observed: Observation) -> Observation:
        return Observation(fault=Fault(cause, "it was not to be"))  # type: ignore[arg-type]

    assert judge(check, scenario, plant, place=number) == unknown(f"{cause}: it was not to be")


@pytest.mark.parametrize("check", CHECKS.values(), ids=identity)
def test_an_exception_in_the_judge_is_unknown(check: Check) -> None:
    def broken(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        raise ZeroDivisionError("division by zero")

    outcome = judge(check._replace(judge=broken), EXAMPLE[check.id])

    assert outcome == unknown(f"the check {check.id} failed: ZeroDivisionError: division by zero")


@pytest.mark.parametrize("check", CHECKS.values(), ids=identity)
def test_no_observation_at_all_is_unknown(check: Check) -> None:
    assert check.outcome(EXAMPLE[check.id], ()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("name", "field", "place"), NEEDED)
def test_a_missing_field_is_unknown_and_named(name: str, field: str, place: int) -> None:
    def plant(observed: Observation) -> Observation:
        kept = [{key: value for key, value in seen.fields.items() if key != field} for seen in observed.seen]
        return Observation(tuple(Seen(fields) for fields in kept))

    outcome = judge(CHECKS[name], EXAMPLE[name], plant, place)

    assert outcome.verdict is Verdict.UNKNOWN
    assert field in outcome.reason


def test_every_check_is_tried_without_a_field_that_it_needs() -> None:
    assert {check.id for check in METADATA} == {name for name, _, _ in NEEDED} | NEED_NONE


@pytest.mark.parametrize(
    "check", [check for check in METADATA if check.id not in ("builds", "attention-runs")], ids=identity
)
def test_a_batch_whose_every_build_raised_is_not_judged(check: Check) -> None:
    scenario = EXAMPLE[check.id]
    observed = [
        Observation(tuple(Seen(error="RuntimeError: no") for _ in observation.seen))
        for observation in observe(Trial.needed(check, scenario))
    ]

    assert check.outcome(scenario, observed) == NOT_RUN


def test_a_round_that_raised_fails_builds() -> None:
    assert judge(CHECKS["builds"], EXAMPLE["builds"], raises("RuntimeError: no")).verdict is Verdict.FAIL


EACH_ROUND = [
    fault
    for fault in PLANTED
    if isinstance(fault.scenario, MetadataScenario) and len(fault.scenario.rounds) == 1
    if fault.check in (*lengths.CHECKS, *tables.CHECKS, *window.CHECKS, *prefix.CHECKS)
]


@pytest.mark.parametrize("fault", EACH_ROUND, ids=str)
def test_a_fault_is_found_after_a_round_that_raised(fault: Planted) -> None:
    assert isinstance(fault.scenario, MetadataScenario)
    twice = replace(fault.scenario, rounds=fault.scenario.rounds * 2)

    def plant(observed: Observation) -> Observation:
        faulty = fault.plant(Observation(observed.seen[1:]))
        return Observation((Seen(error="RuntimeError: no"), *faulty.seen))

    assert fault.expected == fault._replace(scenario=twice, plant=plant).reported()


@pytest.mark.parametrize("check", [check for check in METADATA if check.id not in NEED_NONE], ids=identity)
def test_too_few_observations_are_unknown(check: Check) -> None:
    assert judge(check, EXAMPLE[check.id], lambda observed: Observation()).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_finding_names_its_check_and_the_scenario_to_reproduce_it(fault: Planted) -> None:
    (found,) = judge(fault.check, fault.scenario, fault.plant, fault.place).findings

    assert (fault.check.id, fault.scenario) == (found.check, found.scenario)
    assert found.fingerprint.startswith(f"{fault.check.id}:")
    assert found.meaning


@pytest.mark.parametrize(
    ("scenario", "number", "row", "bracket"),
    [
        (CONTRACT_EXAMPLE, 0, 1, "eager, DFLASH, target_verify, prefix=130, block=16, page=128"),
        (CONTRACT_EXAMPLE, 0, None, "eager, DFLASH, target_verify, block=16, page=128"),
        # A row that pads has no prefix.
        (test_lengths.REPLAY, 0, 2, "graph, DFLASH, target_verify, block=16, page=128"),
        (test_lengths.REPLAYS, 1, 0, "graph, DFLASH, target_verify, prefix=130, block=16, page=128, round=1"),
        (
            test_lengths.LAGGING,
            0,
            1,
            "eager, DFLASH, target_verify, prefix=130, host_lag=-4, block=16, page=128",
        ),
        (test_lengths.DRAFT, 0, 0, "eager, EAGLE, draft_decode, prefix=5, block=5, step=2, page=128"),
        (test_lengths.HOSTLESS, 0, 0, "eager, EAGLE, target_verify, prefix=5, block=16, page=128, host=absent"),
        (test_window.REPLAY, 0, 0, "graph, EAGLE, target_verify, swa, prefix=20, block=4, window=8, page=16"),
        (test_prefix.EXTEND, 0, 2, "eager, NONE, extend, mla, prefix=16, block=1, page=16"),
    ],
)
def test_a_scenario_is_told_by_what_is_not_the_default(
    scenario: MetadataScenario, number: int, row: int | None, bracket: str
) -> None:
    assert bracket == where(scenario, number, row)


def test_no_group_is_all_checks() -> None:
    assert checks_of(()) == list(CHECKS.values())


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_its_checks(group: str) -> None:
    assert {check.group for check in checks_of((group,))} == {group}


def test_groups_together_are_the_checks_of_each() -> None:
    assert checks_of(GROUPS) == list(CHECKS.values())


def test_an_unknown_group_is_wrong_use_and_the_groups_are_named() -> None:
    with pytest.raises(UsageError, match="there is no check group 'speed': the groups are metadata, guard"):
        checks_of(("metadata", "speed"))


@pytest.mark.parametrize("check", CHECKS.values(), ids=identity)
def test_a_claim_is_one_sentence(check: Check) -> None:
    assert check.claim.endswith(".")
    assert ". " not in check.claim
