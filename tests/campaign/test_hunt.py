"""The hunt against subjects with planted faults: found, shrunk, kept apart, and never disturbed by a bad subject."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from harness.campaign import hunt as module
from harness.campaign.hunt import hunt
from harness.campaign.profile import Profile
from harness.campaign.tally import Counts, Tally
from harness.campaign.trial import Observe, Trial
from harness.checks.check import Check
from harness.checks.finding import Finding, Outcome, failed
from harness.checks.registry import CHECKS
from harness.errors import CannotJudge
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Fault, Observation
from harness.scenario.strategies import scenarios
from tests.campaign import planted

PROFILE = Profile(
    "test", examples=20, runs=20, sessions=2, servers=1, sweep_blocks=range(0), sweep_pairs=False, derandomize=False
)
LENGTHS = "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify"
QUERIES = "query-lengths:actual_seq_lengths_q:DFLASH:eager:target_verify:cumulative-wrong"


def hunted(
    observe: Observe,
    checks: Sequence[Check] = (CHECKS["kv-lengths"], CHECKS["query-lengths"]),
    seed: int | None = 0,
    profile: Profile = PROFILE,
    database: Path | None = None,
) -> Tally:
    """What a hunt in `planted.CELL` has found and counted."""
    tally = Tally([check.id for check in checks])
    trial = Trial(observe, checks, tally)
    hunt(trial, scenarios(planted.CELL), profile, seed, str(database) if database else None)
    return tally


@cache
def found(*plants: planted.Plant, seed: int = 0) -> Tally:
    """What a hunt has found in a subject with these faults; to be looked at only."""
    return hunted(planted.subject(*plants), seed=seed)


def only_scenario(tally: Tally) -> MetadataScenario:
    """The scenario of the only finding."""
    (finding,) = tally.findings.values()
    assert isinstance(finding.scenario, MetadataScenario)
    return finding.scenario


def test_nothing_is_found_in_an_ideal_subject() -> None:
    metadata = [check for check in CHECKS.values() if check.group == "metadata"]
    tally = hunted(planted.subject(), metadata)
    assert tally.findings == {}
    assert tally.reasons == {}


def test_every_example_is_counted() -> None:
    tally = hunted(planted.subject(), [CHECKS["builds"]])
    assert tally.checks["builds"].ran == PROFILE.examples
    assert tally.checks["builds"].failed == 0


def test_failures_are_counted_while_they_are_shrunk_too() -> None:
    counts = found(planted.block_added_twice).checks["kv-lengths"]
    assert counts.ran > 0
    assert counts.failed == counts.ran


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_is_found_and_named(seed: int) -> None:
    tally = found(planted.block_added_twice, seed=seed)
    assert list(tally.findings) == [f"{LENGTHS}:block-added-again"]


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_is_shrunk_to_one_request_of_the_simplest_geometry(seed: int) -> None:
    scenario = only_scenario(found(planted.block_added_twice, seed=seed))
    assert scenario.rounds == ((Request(0),),)
    assert (scenario.draft_tokens, scenario.pool.page_size, scenario.pool.page_stride) == (1, 128, 1)


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_at_a_boundary_is_shrunk_to_the_first_length_beyond_it(seed: int) -> None:
    scenario = only_scenario(found(planted.block_added_twice_across_pages, seed=seed))
    first = scenario.pool.page_size - scenario.draft_tokens + 1
    assert scenario.rounds == ((Request(first),),)


def test_faults_of_two_checks_are_two_findings() -> None:
    tally = found(planted.block_added_twice, planted.queries_not_counted)
    assert sorted(tally.findings) == [f"{LENGTHS}:block-added-again", QUERIES]


def test_faults_of_one_check_are_two_findings() -> None:
    tally = found(planted.block_added_twice, planted.long_prefix_cut)
    assert sorted(tally.findings) == [f"{LENGTHS}:block-added-again", f"{LENGTHS}:too-short"]


def test_a_scenario_never_slips_to_another_fault_while_it_is_shrunk() -> None:
    tally = found(planted.block_added_twice, planted.long_prefix_cut)
    scenario = tally.findings[f"{LENGTHS}:too-short"].scenario
    assert isinstance(scenario, MetadataScenario)
    assert scenario.rounds == ((Request(200),),)


def test_every_finding_reproduces_from_its_scenario() -> None:
    plants = (planted.block_added_twice, planted.queries_not_counted)
    for fingerprint, finding in found(*plants).findings.items():
        again = CHECKS[finding.check].outcome(finding.scenario, planted.subject(*plants)([finding.scenario]))
        assert [one.fingerprint for one in again.findings] == [fingerprint]


def test_a_cell_that_is_wrong_all_over_is_left_after_the_most_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        assert isinstance(scenario, MetadataScenario)
        name = f"builds:{scenario.draft_tokens}"
        return failed(Finding("builds", name, "DFLASH", "eager", "target_verify", "", "", scenario))

    monkeypatch.setattr(module, "MOST_FINDINGS", 3)
    tally = hunted(planted.subject(), [CHECKS["builds"]._replace(judge=judge)])
    assert len(tally.findings) == 3


def test_what_the_tally_has_already_is_not_searched_for() -> None:
    observe = planted.subject(planted.block_added_twice)
    known = hunted(observe)
    ran = known.checks["kv-lengths"].ran
    hunt(Trial(observe, [CHECKS["kv-lengths"]], known), scenarios(planted.CELL), PROFILE, 0)
    assert known.checks["kv-lengths"].ran <= ran + PROFILE.examples
    assert list(known.findings) == [f"{LENGTHS}:block-added-again"]


def test_the_same_seed_gives_the_same_findings() -> None:
    plants = (planted.block_added_twice, planted.queries_not_counted)
    again = hunted(planted.subject(*plants))
    assert again.findings == found(*plants).findings
    assert again.checks == found(*plants).checks


@cache
def drawn(seed: int, profile: Profile) -> list[Scenario]:
    """Every scenario that a hunt puts to an ideal subject."""
    asked: list[Scenario] = []

    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        asked.extend(scenarios)
        return planted.subject()(scenarios)

    hunted(observe, seed=seed, profile=profile)
    return asked


def test_another_seed_draws_other_scenarios() -> None:
    assert drawn(1, PROFILE) != drawn(2, PROFILE)


def test_a_derandomized_profile_draws_the_same_scenarios_whatever_the_seed() -> None:
    fixed = PROFILE._replace(derandomize=True)
    assert drawn(1, fixed) == drawn(2, fixed)


def test_a_finding_is_met_again_from_the_database(tmp_path: Path) -> None:
    observe = planted.subject(planted.block_added_twice_across_pages)
    before = hunted(observe, database=tmp_path, profile=PROFILE._replace(examples=200), seed=None)
    assert before.findings
    again = hunted(observe, database=tmp_path, profile=PROFILE._replace(examples=1), seed=None)
    assert again.findings == before.findings


def unreliable(observe: Observe, seed: int) -> Observe:
    """`observe`, but one call in ten is a crash."""
    chance = random.Random(seed)

    def one_in_ten(scenarios: Sequence[Scenario]) -> list[Observation]:
        if chance.random() < 0.1:
            return [Observation(fault=Fault("crash", "killed by chance")) for _ in scenarios]
        return observe(scenarios)

    return one_in_ten


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_subject_that_crashes_by_chance_ends_with_the_same_findings(seed: int) -> None:
    observe = planted.subject(planted.block_added_twice, planted.queries_not_counted)
    tally = hunted(unreliable(observe, seed), seed=seed)
    assert sorted(tally.findings) == [f"{LENGTHS}:block-added-again", QUERIES]


def test_a_crash_is_counted_as_unknown_with_its_reason() -> None:
    tally = hunted(lambda scenarios: [Observation(fault=Fault("crash", "killed")) for _ in scenarios])
    assert tally.checks["query-lengths"] == Counts(unknown=PROFILE.examples)
    assert tally.reasons["query-lengths"] == "crash: killed"


def test_a_finding_that_does_not_show_again_is_kept() -> None:
    wrong, times = planted.subject(planted.block_added_twice), Counter[Scenario]()

    def only_once(scenarios: Sequence[Scenario]) -> list[Observation]:
        times.update(scenarios)
        again = any(times[scenario] > 1 for scenario in scenarios)
        return [Observation(fault=Fault("crash", "only once")) for _ in scenarios] if again else wrong(scenarios)

    assert list(hunted(only_once).findings) == [f"{LENGTHS}:block-added-again"]


def lost_after(calls: int, observe: Observe) -> Observe:
    """`observe`, until the subject is lost for good."""
    remaining = iter(range(calls))

    def answer(scenarios: Sequence[Scenario]) -> list[Observation]:
        if next(remaining, None) is None:
            raise CannotJudge("the subject was lost")
        return observe(scenarios)

    return answer


@pytest.mark.parametrize("calls", [0, 10])
def test_a_subject_that_is_lost_ends_the_hunt(calls: int) -> None:
    with pytest.raises(CannotJudge, match="the subject was lost"):
        hunted(lost_after(calls, planted.subject()))


def test_a_finding_is_kept_when_the_subject_is_lost_while_it_is_shrunk() -> None:
    wrong, check, tally = planted.subject(planted.block_added_twice), CHECKS["kv-lengths"], Tally(["kv-lengths"])

    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        if tally.checks["kv-lengths"].failed:
            raise CannotJudge("the subject was lost")
        return wrong(scenarios)

    with pytest.raises(CannotJudge):
        hunt(Trial(observe, [check], tally), scenarios(planted.CELL), PROFILE, 0)
    assert list(tally.findings) == [f"{LENGTHS}:block-added-again"]
