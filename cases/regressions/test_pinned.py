"""Pinned scenarios: each is wrong in exactly the releases that it names, and right everywhere else.

A sentinel names no finding: there, right is that no check finds anything.
"""

from pathlib import Path

import pytest

from harness.scenario.capability import missing
from harness.scenario.case import Case
from harness.scenario.pinned import pinned_cases

PINNED = pinned_cases(Path(__file__).parent)


@pytest.mark.parametrize("case", PINNED.values(), ids=PINNED.keys())
def test_a_pinned_scenario_is_wrong_where_it_is_known_to_be_and_nowhere_else(case: Case, bench) -> None:
    if lacking := missing(case.scenario, bench.capabilities):
        pytest.skip(f"this sglang has no {', '.join(sorted(lacking))}")
    (observation,) = bench.supervisor.observe([case.scenario])
    if observation.fault is not None and observation.fault.cause == "unsupported":
        pytest.skip(observation.fault.reason)
    checks = [check for check in bench.checks if case.check in ("", check.id)]
    findings, unknown = bench.judge(case.scenario, checks)

    assert unknown == []
    assert case.shows_in({finding.fingerprint for finding in findings}) == bool(bench.accepted & set(case.wrong_in))
