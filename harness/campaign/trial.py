"""One trial: a scenario and its variants go to the subject together, and every check that applies judges."""

from collections.abc import Callable, Sequence

from harness.campaign.tally import Tally
from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Observation

Observe = Callable[[Sequence[Scenario]], list[Observation]]


class Trial:
    """Judges scenarios with `checks` through `observe`, and counts in `tally`."""

    def __init__(self, observe: Observe, checks: Sequence[Check], tally: Tally) -> None:
        self.observe = observe
        self.checks = checks
        self.tally = tally

    def judge(self, scenario: Scenario, only: str = "") -> list[Finding]:
        """The findings of `scenario`, by all checks or `only` one; what several checks need is observed once."""
        checks = [check for check in self.checks if only in ("", check.id)]
        plan = {check: self.needed(check, scenario) for check in checks if check.applies(scenario)}
        wanted = list(dict.fromkeys(one for needed in plan.values() for one in needed))
        observed = dict(zip(wanted, self.observe(wanted), strict=True))
        findings: list[Finding] = []
        for check, needed in plan.items():
            outcome = check.outcome(scenario, [observed[one] for one in needed])
            self.tally.count(check.id, outcome)
            findings += outcome.findings
        return findings

    @staticmethod
    def needed(check: Check, scenario: Scenario) -> list[Scenario]:
        """The scenario, and the variants that `check` compares it with."""
        variants = check.variants(scenario) if isinstance(scenario, MetadataScenario) else ()
        return [scenario, *variants]
