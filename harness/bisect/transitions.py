"""Where each finding comes and goes along the releases; history is not monotone, so every change counts."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from harness.campaign.run import Run
from harness.checks.finding import Finding
from harness.scenario.capability import missing

#: Where releases are tagged `v0.5.18`.
REPOSITORY = "https://github.com/sgl-project/sglang"

State = Literal["wrong", "right", "unknown", "absent"]


class Transition(msgspec.Struct, frozen=True):
    """`fingerprint` changes between two neighbouring releases that could be judged; `skipped` lie between them."""

    fingerprint: str
    change: Literal["broken", "fixed"]
    good: str
    bad: str
    skipped: tuple[str, ...] = ()

    @property
    def older(self) -> str:
        """The release before the change."""
        return self.good if self.change == "broken" else self.bad

    @property
    def newer(self) -> str:
        """The release that has the change."""
        return self.bad if self.change == "broken" else self.good

    @property
    def link(self) -> str:
        """The page of every commit between the tags of the two releases."""
        return compare(self.older, self.newer)


def compare(older: str, newer: str) -> str:
    """The page of every commit between the tags of two releases."""
    return f"{REPOSITORY}/compare/v{older}...v{newer}"


def state(run: Run, finding: Finding) -> State:
    """How `run` stands to `finding`: `absent` where its sglang has no such algorithm or option.

    A check reports the first thing that it finds wrong with a batch, so another finding of the same check on the same
    path may hide this one: the state is then unknown.
    """
    if any(own.fingerprint == finding.fingerprint for own in run.findings):
        return "wrong"
    hidden = any(_path(own) == _path(finding) for own in run.findings)
    if hidden or "subject" in run.unknown or finding.check in run.unknown:
        return "unknown"
    return "absent" if missing(finding.scenario, run.subject.capabilities) else "right"


def _path(finding: Finding) -> tuple[str, ...]:
    parts = finding.fingerprint.split(":")
    return parts[0], *parts[2:5], *parts[6:]


def all_findings(runs: Sequence[Run]) -> dict[str, Finding]:
    """One finding for each fingerprint that any run has."""
    return {finding.fingerprint: finding for run in runs for finding in run.findings}


def transitions(runs: Sequence[Run]) -> list[Transition]:
    """Every change of every finding, in the order of `runs` (oldest first)."""
    changes = []
    for fingerprint, finding in sorted(all_findings(runs).items()):
        last: tuple[str, State] | None = None
        skipped: list[str] = []
        for run in runs:
            now = state(run, finding)
            if now not in ("wrong", "right"):
                skipped.append(run.subject.release)
                continue
            if last is not None and last[1] != now:
                broken = now == "wrong"
                good, bad = (last[0], run.subject.release) if broken else (run.subject.release, last[0])
                change: Literal["broken", "fixed"] = "broken" if broken else "fixed"
                changes.append(Transition(fingerprint, change, good, bad, tuple(skipped)))
            last, skipped = (run.subject.release, now), []
    return changes
