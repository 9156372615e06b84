"""What a check says: a verdict, and for a failure the finding that a user reads."""

from enum import Enum

import msgspec

from harness.scenario import Scenario


class Verdict(Enum):
    """The outcome of one check on one scenario; NOT_RUN where the backend raised before there was anything to judge."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_RUN = "not run"


class Finding(msgspec.Struct, frozen=True):
    """One failure.

    `fingerprint` identifies the fault across scenarios and releases: check, field, algorithm, executor, mode, and the
    relation between actual and expected. `message` names the value; `meaning` says what a user would see.
    """

    check: str
    fingerprint: str
    algorithm: str
    executor: str
    mode: str
    message: str
    meaning: str
    scenario: Scenario


class Outcome(msgspec.Struct, frozen=True):
    """A verdict with its findings, or with the reason why there is none."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    reason: str = ""


PASSED = Outcome(Verdict.PASS)
NOT_RUN = Outcome(Verdict.NOT_RUN)


def failed(*findings: Finding) -> Outcome:
    """FAIL with `findings`, or PASS where there are none."""
    return Outcome(Verdict.FAIL, findings) if findings else PASSED


def unknown(reason: str) -> Outcome:
    """UNKNOWN, for `reason`."""
    return Outcome(Verdict.UNKNOWN, reason=reason)
