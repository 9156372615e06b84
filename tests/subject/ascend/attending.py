"""What every check on attention finds in one scenario on a real sglang."""

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.finding import Finding
from harness.checks.registry import checks_of
from harness.scenario import MetadataScenario
from harness.scenario.validity import why_invalid
from harness.subject.supervisor import Supervisor

CHECKS = checks_of(("kv-bounds", "outputs"))


def found(supervisor: Supervisor, one: MetadataScenario) -> list[Finding]:
    """The findings of a scenario that is valid, and that every one of the checks could judge."""
    assert why_invalid(one) == ""
    tally = Tally([check.id for check in CHECKS])
    findings = list(Trial(supervisor.observe, CHECKS, tally).judge(one))
    assert all(counts.ran == 1 for counts in tally.checks.values())
    return findings
