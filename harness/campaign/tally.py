"""What a run has seen so far: how often each check ran, and the smallest scenario of each finding."""

import msgspec

from harness.checks.finding import Finding, Outcome, Verdict


class Counts(msgspec.Struct):
    """Executions of one check: `ran` counts passes and failures, `failed` the failures, `unknown` the rest."""

    ran: int = 0
    failed: int = 0
    unknown: int = 0


class Tally:
    """Counts per check id, findings per fingerprint, and one reason per check for what could not be judged."""

    def __init__(self, check_ids: list[str]) -> None:
        self.checks = {check_id: Counts() for check_id in check_ids}
        self.findings: dict[str, Finding] = {}
        self.reasons: dict[str, str] = {}

    def count(self, check_id: str, outcome: Outcome) -> None:
        """Add one outcome to the counts; findings are kept by `keep`, once they are small."""
        counts = self.checks[check_id]
        if outcome.verdict is Verdict.UNKNOWN:
            counts.unknown += 1
            self.reasons.setdefault(check_id, outcome.reason)
        elif outcome.verdict is not Verdict.NOT_RUN:
            counts.ran += 1
            counts.failed += outcome.verdict is Verdict.FAIL

    def keep(self, finding: Finding) -> None:
        """Keep `finding` unless its fingerprint is known with a smaller scenario already."""
        known = self.findings.get(finding.fingerprint)
        if known is None or size(finding) < size(known):
            self.findings[finding.fingerprint] = finding

    @property
    def never_ran(self) -> list[str]:
        """Checks that neither passed nor failed on anything."""
        return [check_id for check_id, counts in self.checks.items() if counts.ran == 0]


def size(finding: Finding) -> tuple[int, int]:
    """Order of scenarios from simple to complicated: requests first, then the length of the JSON."""
    scenario = finding.scenario
    batches = getattr(scenario, "rounds", None) or [getattr(scenario, "requests", getattr(scenario, "visits", ()))]
    return sum(len(batch) for batch in batches), len(msgspec.json.encode(scenario))
