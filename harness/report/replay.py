"""The case file of each finding, and the command that replays it."""

import shlex
from hashlib import sha256
from pathlib import Path

import msgspec

from harness.campaign.run import Run
from harness.checks.finding import Finding
from harness.files import safe_name
from harness.report.judgement import judge
from harness.scenario.case import SCHEMA, Case, write_case
from harness.subject.losses import LostScenario
from harness.subject.pending import Unanswered

FOLDER = Path(".harness", "findings")
LOST = Path(".harness", "lost")


def case_path(run: Run, finding: Finding, folder: Path = FOLDER) -> Path:
    """Where the case of `finding` lies: one folder per sglang, one file per fingerprint."""
    return folder / _subject(run) / f"{safe_name(finding.fingerprint, '-')}.json"


def _subject(run: Run) -> str:
    name = safe_name(run.subject.release or run.subject.spec)
    return f"{name}-{run.subject.revision[:12]}" if run.subject.revision else name


def lost_path(run: Run, lost: LostScenario, folder: Path = LOST) -> Path:
    """Where the case of a scenario lies that costs its subject: named by its fault, and by what it is."""
    digest = sha256(msgspec.json.encode(lost.scenario)).hexdigest()[:12]
    return folder / _subject(run) / f"{lost.fault.cause}-{digest}.json"


def lost_command(run: Run, lost: LostScenario, folder: Path = LOST) -> str:
    """What a user types to lose the subject again."""
    return replaying(lost_path(run, lost, folder), run.subject.spec, run.subject.device)


def command(run: Run, finding: Finding, folder: Path = FOLDER) -> str:
    """What a user types to see `finding` again."""
    return replaying(case_path(run, finding, folder), run.subject.spec, run.subject.device)


def replaying(path: Path, spec: str, device: str) -> str:
    """The command that replays the case at `path`."""
    npu = "" if device == "emulated" else " --device npu"
    return f"harness replay {shlex.quote(str(path))} --sglang {shlex.quote(spec)}{npu}"


def unanswered_sentence(left: Unanswered) -> str:
    """What a user is told of scenarios that an earlier harness has left behind."""
    return (
        f"an earlier run ended before sglang {left.spec} had answered: `{replaying(*left)}` asks again; delete "
        f"{left.path.parent} to forget it."
    )


def write_cases(run: Run, folder: Path = FOLDER, lost_folder: Path = LOST) -> None:
    """Write the case of every finding of `run`, and of what costs its subject; raises CannotJudge where it cannot."""
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
    for lost in run.lost:
        note = f"{lost.fault.cause}: {lost.fault.reason}\n{lost.fault.stderr}".strip()
        case = Case(schema=SCHEMA, scenario=lost.scenario, sglang=run.subject.release, note=note)
        write_case(lost_path(run, lost, lost_folder), case)
