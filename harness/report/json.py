"""Runs and scans as documents of the JSON interface: see docs/json.md."""

from collections.abc import Sequence
from typing import Any

import msgspec

from harness.bisect.transitions import Transition, all_findings, state
from harness.campaign.run import Run
from harness.checks.finding import Finding
from harness.report.document import (
    SCHEMA,
    FindingDocument,
    JudgementDocument,
    LostDocument,
    RunDocument,
    ScanDocument,
    TransitionDocument,
)
from harness.report.judgement import judge
from harness.report.replay import command, lost_command
from harness.scenario import Scenario


def run_document(run: Run) -> RunDocument:
    """One run as plain data: subject, counts per check, findings, and what could not be judged."""
    return RunDocument(
        schema=SCHEMA,
        subject=run.subject,
        profile=run.profile,
        seed=run.seed,
        status=int(run.exit_status),
        checks=run.checks,
        findings=tuple(_finding(run, finding) for finding in run.findings),
        unknown=run.unknown,
        losses=run.losses,
        lost=tuple(
            LostDocument(_plain(lost.scenario), msgspec.to_builtins(lost.fault), lost_command(run, lost))
            for lost in run.lost
        ),
        overhead=run.overhead,
    )


def _finding(run: Run, finding: Finding) -> FindingDocument:
    judgement = judge(finding.fingerprint)
    return FindingDocument(
        **{**msgspec.structs.asdict(finding), "scenario": _plain(finding.scenario)},
        judgement=JudgementDocument(judgement.kind, judgement.why, judgement.reports),
        replay=command(run, finding),
    )


def _plain(scenario: Scenario) -> dict[str, Any]:
    """`scenario` as JSON reads it again, with lists for tuples."""
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(scenario))
    return plain


def scan_document(runs: Sequence[Run], transitions: Sequence[Transition]) -> ScanDocument:
    """A scan: one run per release, how each stands to every finding, and every change from right to wrong or back."""
    states = {
        fingerprint: tuple(state(run, finding) for run in runs) for fingerprint, finding in all_findings(runs).items()
    }
    changes = tuple(TransitionDocument(**msgspec.structs.asdict(one), compare=one.link) for one in transitions)
    return ScanDocument(SCHEMA, tuple(run_document(run) for run in runs), states, changes)
