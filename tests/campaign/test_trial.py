"""One trial: what is put to the subject, who judges it, and what is counted."""

from collections.abc import Sequence

from harness.campaign.tally import Counts, Tally
from harness.campaign.trial import Trial
from harness.checks.registry import CHECKS
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario
from harness.scenario.observation import Fault, Observation
from tests.campaign import planted

SCENARIO = MetadataScenario("DFLASH", "target_verify", ((Request(5), Request(9, row=2)),), draft_tokens=4)
LENGTHS, ORDER, IDEMPOTENT = CHECKS["kv-lengths"], CHECKS["request-order"], CHECKS["idempotent"]


class Asked:
    """An `observe` with planted faults that remembers what it was asked."""

    def __init__(self, *plants: planted.Plant) -> None:
        self.observe = planted.subject(*plants)
        self.calls: list[list[Scenario]] = []

    def __call__(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        self.calls.append(list(scenarios))
        return self.observe(scenarios)


def test_a_scenario_and_its_variants_go_to_the_subject_together() -> None:
    asked = Asked()
    Trial(asked, [ORDER], Tally([ORDER.id])).judge(SCENARIO)
    assert asked.calls == [[SCENARIO, *ORDER.variants(SCENARIO)]]


def test_what_several_checks_need_is_observed_once() -> None:
    asked, checks = Asked(), [LENGTHS, ORDER, IDEMPOTENT]
    Trial(asked, checks, Tally([check.id for check in checks])).judge(SCENARIO)
    assert asked.calls == [[SCENARIO, *ORDER.variants(SCENARIO), *IDEMPOTENT.variants(SCENARIO)]]


def test_every_check_gets_its_own_variants() -> None:
    checks = [ORDER, IDEMPOTENT]
    tally = Tally([check.id for check in checks])
    assert Trial(Asked(), checks, tally).judge(SCENARIO) == []
    assert tally.checks == {ORDER.id: Counts(ran=1), IDEMPOTENT.id: Counts(ran=1)}


def test_a_check_that_does_not_apply_is_neither_run_nor_counted() -> None:
    tally = Tally([LENGTHS.id, "device-gate"])
    Trial(Asked(), [LENGTHS, CHECKS["device-gate"]], tally).judge(GateScenario("npu"))
    assert tally.checks == {LENGTHS.id: Counts(), "device-gate": Counts(ran=1)}


def test_without_a_check_that_applies_nothing_is_found() -> None:
    assert Trial(Asked(), [LENGTHS], Tally([LENGTHS.id])).judge(GateScenario("npu")) == []


def test_only_one_check_judges_where_one_is_named() -> None:
    asked, tally = Asked(), Tally([LENGTHS.id, ORDER.id])
    Trial(asked, [LENGTHS, ORDER], tally).judge(SCENARIO, LENGTHS.id)
    assert asked.calls == [[SCENARIO]]
    assert tally.checks == {LENGTHS.id: Counts(ran=1), ORDER.id: Counts()}


def test_the_findings_of_all_checks_come_back() -> None:
    checks = [LENGTHS, CHECKS["query-lengths"]]
    asked = Asked(planted.block_added_twice, planted.queries_not_counted)
    findings = Trial(asked, checks, Tally([check.id for check in checks])).judge(SCENARIO)
    assert [finding.check for finding in findings] == ["kv-lengths", "query-lengths"]
    assert {finding.scenario for finding in findings} == {SCENARIO}


def test_a_finding_is_counted_as_failed_and_not_kept() -> None:
    tally = Tally([LENGTHS.id])
    Trial(Asked(planted.block_added_twice), [LENGTHS], tally).judge(SCENARIO)
    assert tally.checks[LENGTHS.id] == Counts(ran=1, failed=1)
    assert tally.findings == {}


def test_a_fault_of_the_scenario_is_unknown_for_every_check() -> None:
    checks = [LENGTHS, ORDER]
    tally = Tally([check.id for check in checks])
    crashed = Observation(fault=Fault("crash", "killed"))
    assert Trial(lambda scenarios: [crashed for _ in scenarios], checks, tally).judge(SCENARIO) == []
    assert tally.checks == {LENGTHS.id: Counts(unknown=1), ORDER.id: Counts(unknown=1)}


def test_a_fault_of_a_variant_is_unknown_for_the_checks_that_need_it() -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        crashed = Observation(fault=Fault("crash", "killed"))
        return [planted.subject()([one])[0] if one == SCENARIO else crashed for one in scenarios]

    tally = Tally([LENGTHS.id, ORDER.id])
    Trial(observe, [LENGTHS, ORDER], tally).judge(SCENARIO)
    assert tally.checks == {LENGTHS.id: Counts(ran=1), ORDER.id: Counts(unknown=1)}


def test_a_gate_scenario_needs_no_variants() -> None:
    gate = GateScenario("npu")
    assert Trial.needed(CHECKS["device-gate"], gate) == [gate]
