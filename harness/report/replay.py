"""The case file of each finding, and the command that replays it."""

import re
import shlex
from pathlib import Path

from harness.campaign.run import Run
from harness.checks.finding import Finding
from harness.report.judgement import judge
from harness.scenario.case import SCHEMA, Case, write_case

FOLDER = Path(".harness", "findings")


def case_path(run: Run, finding: Finding, folder: Path = FOLDER) -> Path:
    """Where the case of `finding` lies: one folder per sglang, one file per fingerprint."""
    subject = re.sub(r"[^A-Za-z0-9._-]+", "_", run.subject.release or run.subject.spec).lstrip(".") or "_"
    if run.subject.revision:
        subject += f"-{run.subject.revision[:12]}"
    return folder / subject / (re.sub(r"[^A-Za-z0-9._-]+", "-", finding.fingerprint) + ".json")


def command(run: Run, finding: Finding, folder: Path = FOLDER) -> str:
    """What a user types to see `finding` again."""
    device = "" if run.subject.device == "emulated" else " --device npu"
    path = case_path(run, finding, folder)
    return f"harness replay {shlex.quote(str(path))} --sglang {shlex.quote(run.subject.spec)}{device}"


def write_cases(run: Run, folder: Path = FOLDER) -> None:
    """Write the case of every finding of `run`; raises CannotJudge where the disk is full."""
    for finding in run.findings:
        case = Case(
            schema=SCHEMA,
            scenario=finding.scenario,
            check=finding.check,
            fingerprint=finding.fingerprint,
            sglang=run.subject.release,
            note=finding.message,
            reports=judge(finding.fingerprint).reports,
        )
        write_case(case_path(run, finding, folder), case)
