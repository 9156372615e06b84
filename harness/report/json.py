"""The JSON interface: see docs/json.md."""

from typing import Any

import msgspec

from harness.bisect.transitions import Transition
from harness.campaign.run import Run
from harness.report.judgement import judge
from harness.report.replay import command, lost_command

SCHEMA = 1


def run_document(run: Run) -> dict[str, Any]:
    """One run as plain data: subject, counts per check, findings, and what could not be judged."""
    return {
        "schema": SCHEMA,
        "subject": msgspec.to_builtins(run.subject),
        "profile": run.profile,
        "seed": run.seed,
        "status": int(run.exit_status),
        "checks": msgspec.to_builtins(run.checks),
        "findings": [_finding(run, finding) for finding in run.findings],
        "unknown": run.unknown,
        "losses": msgspec.to_builtins(run.losses),
        "lost": [{**msgspec.to_builtins(lost), "replay": lost_command(run, lost)} for lost in run.lost],
        "overhead": msgspec.to_builtins(run.overhead),
    }


def _finding(run: Run, finding: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(finding)
    judgement = judge(finding.fingerprint)
    document["judgement"] = {"kind": judgement.kind, "why": judgement.why, "reports": list(judgement.reports)}
    document["replay"] = command(run, finding)
    return document


def scan_document(runs: list[Run], transitions: list[Transition]) -> dict[str, Any]:
    """A scan: one run per release, and every change from right to wrong or back."""
    return {
        "schema": SCHEMA,
        "runs": [run_document(run) for run in runs],
        "transitions": msgspec.to_builtins(transitions),
    }


def encode(document: dict[str, Any]) -> bytes:
    """`document` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
