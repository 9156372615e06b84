"""Counting outcomes, and keeping the smallest scenario of each finding."""

import pytest

from harness.campaign.tally import Counts, Tally, size
from harness.checks.finding import NOT_RUN, PASSED, Finding, Outcome, failed, unknown
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario


def verify(*prefixes: int) -> MetadataScenario:
    """One batch with these prefixes."""
    batch = tuple(Request(prefix, row=row) for row, prefix in enumerate(prefixes, start=1))
    return MetadataScenario("DFLASH", "target_verify", (batch,), draft_tokens=4)


def found(scenario: Scenario, fingerprint: str = "one") -> Finding:
    return Finding("kv-lengths", fingerprint, "DFLASH", "eager", "target_verify", "wrong", "matters", scenario)


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        (PASSED, Counts(ran=1)),
        (failed(found(verify(5)), found(verify(6), "two")), Counts(ran=1, failed=1)),
        (unknown("no idea"), Counts(unknown=1)),
        (NOT_RUN, Counts()),
    ],
    ids=["pass", "fail", "unknown", "not run"],
)
def test_every_verdict_has_its_count(outcome: Outcome, counts: Counts) -> None:
    tally = Tally(["kv-lengths"])
    tally.count("kv-lengths", outcome)
    assert tally.checks == {"kv-lengths": counts}


def test_the_first_reason_of_a_check_is_kept() -> None:
    tally = Tally(["one", "two"])
    for check_id, reason in (("one", "first"), ("one", "second"), ("two", "other")):
        tally.count(check_id, unknown(reason))
    assert tally.reasons == {"one": "first", "two": "other"}


def test_a_check_without_a_pass_or_a_failure_never_ran() -> None:
    tally = Tally(["passed", "failed", "unknown", "not run", "never met"])
    tally.count("passed", PASSED)
    tally.count("failed", failed(found(verify(5))))
    tally.count("unknown", unknown("no idea"))
    tally.count("not run", NOT_RUN)
    assert tally.never_ran == ["unknown", "not run", "never met"]


def test_counting_keeps_no_finding() -> None:
    tally = Tally(["kv-lengths"])
    tally.count("kv-lengths", failed(found(verify(5))))
    assert tally.findings == {}


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_smallest_scenario_is_kept_in_whatever_order_they_come(order: tuple[int, ...]) -> None:
    scenarios = [verify(5), verify(1000), verify(1, 2)]
    tally = Tally(["kv-lengths"])
    for index in order:
        tally.keep(found(scenarios[index]))
    assert tally.findings == {"one": found(scenarios[0])}


def test_of_equally_small_scenarios_the_first_is_kept() -> None:
    tally = Tally(["kv-lengths"])
    tally.keep(found(verify(5)))
    tally.keep(found(verify(6)))
    assert tally.findings == {"one": found(verify(5))}


def test_every_fingerprint_is_a_finding_of_its_own() -> None:
    tally = Tally(["kv-lengths"])
    tally.keep(found(verify(5)))
    tally.keep(found(verify(5), "two"))
    assert list(tally.findings) == ["one", "two"]


def test_requests_weigh_more_than_numbers() -> None:
    assert size(found(verify(999_999))) < size(found(verify(1, 1)))


def test_a_gate_scenario_is_the_smallest() -> None:
    assert size(found(GateScenario("npu"))) < size(found(verify(0)))
