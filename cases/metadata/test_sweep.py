"""Every batch of one and two requests within small bounds."""

import pytest

from harness.campaign.profile import PROFILES
from harness.campaign.sweeping import run_sweep
from harness.campaign.tally import Tally
from harness.scenario.sweep import sweep


@pytest.mark.slow
def test_metadata_of_every_small_batch_is_right(bench, request: pytest.FixtureRequest) -> None:
    profile = PROFILES[request.config.getoption("--profile")]
    tally = Tally(list(bench.tally.checks))
    run_sweep(bench.supervisor.observe, bench.checks, tally, sweep(profile.sweep_blocks, profile.sweep_pairs))
    unexpected = [finding for name, finding in tally.findings.items() if name not in bench.known]

    assert tally.reasons == {}
    assert [bench.explain(finding) for finding in unexpected] == []
