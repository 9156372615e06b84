"""The sweep in bulk frames: everything once, in order, and the smallest scenario of each finding."""

from collections.abc import Sequence

import pytest

from harness.campaign.sweeping import FRAME, frames, run_sweep
from harness.campaign.tally import Counts, Tally
from harness.checks.registry import CHECKS
from harness.errors import CannotJudge
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Fault, Observation
from harness.scenario.sweep import sweep
from tests.campaign import planted

LENGTHS, ORDER = CHECKS["kv-lengths"], CHECKS["request-order"]


def verify(*prefixes: int) -> MetadataScenario:
    """One eager DFlash batch with these prefixes."""
    batch = tuple(Request(prefix, row=row) for row, prefix in enumerate(prefixes, start=1))
    return MetadataScenario("DFLASH", "target_verify", (batch,), draft_tokens=4)


MANY = [verify(prefix) for prefix in range(2 * FRAME + 7)]


def test_frames_hold_every_scenario_once_and_in_order() -> None:
    cut = list(frames(MANY, 100))
    assert [len(frame) for frame in cut] == [100, 100, 100, 100, 100, 7]
    assert [scenario for frame in cut for scenario in frame] == MANY


def test_no_scenarios_are_no_frames() -> None:
    assert list(frames([])) == []


@pytest.mark.parametrize("count", [0, 1, FRAME, FRAME + 1, len(MANY)])
def test_every_scenario_is_judged_once(count: int) -> None:
    tally = Tally([LENGTHS.id])
    run_sweep(planted.subject(), [LENGTHS], tally, MANY[:count])
    assert tally.checks[LENGTHS.id] == Counts(ran=count)


def test_every_scenario_is_asked_for_once_and_in_order() -> None:
    asked: list[Scenario] = []

    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        asked.extend(scenarios)
        return planted.subject()(scenarios)

    run_sweep(observe, [LENGTHS], Tally([LENGTHS.id]), iter(MANY))
    assert asked == MANY


def test_the_whole_sweep_of_a_block_passes_on_an_ideal_subject() -> None:
    checks = [check for check in CHECKS.values() if check.group == "metadata"]
    tally = Tally([check.id for check in checks])
    swept = list(sweep(range(4, 5), pairs=False))
    run_sweep(planted.subject(), checks, tally, swept)
    assert tally.checks["builds"] == Counts(ran=len(swept))
    assert tally.findings == {}
    assert tally.reasons == {}


def test_checks_that_compare_variants_are_left_out() -> None:
    tally = Tally([ORDER.id])
    run_sweep(planted.subject(), [ORDER], tally, [verify(1, 2)])
    assert tally.checks[ORDER.id] == Counts()


def test_of_each_finding_the_smallest_scenario_is_kept() -> None:
    tally = Tally([LENGTHS.id])
    swept = [verify(9, 126), verify(1000), *MANY, verify(125, 7)]
    run_sweep(planted.subject(planted.block_added_twice_across_pages), [LENGTHS], tally, swept)
    (finding,) = tally.findings.values()
    assert finding.scenario == verify(125)


def test_every_failure_is_counted() -> None:
    tally = Tally([LENGTHS.id])
    run_sweep(planted.subject(planted.block_added_twice), [LENGTHS], tally, MANY)
    assert tally.checks[LENGTHS.id] == Counts(ran=len(MANY), failed=len(MANY))


def test_a_fault_is_unknown_for_its_scenario_only() -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        crashed = Observation(fault=Fault("crash", "killed"))
        return [crashed if one == MANY[3] else planted.subject()([one])[0] for one in scenarios]

    tally = Tally([LENGTHS.id])
    run_sweep(observe, [LENGTHS], tally, MANY[:10])
    assert tally.checks[LENGTHS.id] == Counts(ran=9, unknown=1)


def test_every_finished_frame_is_told_with_its_size() -> None:
    advanced: list[int] = []
    run_sweep(planted.subject(), [LENGTHS], Tally([LENGTHS.id]), MANY, advanced.append)
    assert advanced == [FRAME, FRAME, 7]


def test_a_subject_that_is_lost_ends_the_sweep_with_what_was_judged_before() -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        if scenarios[0] != MANY[0]:
            raise CannotJudge("the subject was lost")
        return planted.subject()(scenarios)

    tally = Tally([LENGTHS.id])
    with pytest.raises(CannotJudge, match="the subject was lost"):
        run_sweep(observe, [LENGTHS], tally, MANY)
    assert tally.checks[LENGTHS.id] == Counts(ran=FRAME)


def test_another_number_of_observations_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        run_sweep(lambda scenarios: [], [LENGTHS], Tally([LENGTHS.id]), MANY[:1])
