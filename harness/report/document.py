"""The JSON documents that the harness writes and reads again; docs/json.md tells what each field is."""

from pathlib import Path
from typing import Any

import msgspec

from harness.bisect.answer import Answer
from harness.bisect.transitions import State, Transition
from harness.campaign.tally import Counts
from harness.errors import Exit, UsageError
from harness.mutate.study import Score, Study
from harness.parity.acceptance_comparison import Comparison as AcceptanceComparison
from harness.parity.document import ComparisonDocument
from harness.parity.history import Night
from harness.report.judgement import Kind
from harness.shadow.overhead import Overhead
from harness.subject.frames import SubjectInfo
from harness.subject.losses import Losses

SCHEMA = 1


class JudgementDocument(msgspec.Struct, frozen=True):
    """How a finding was judged, and the public reports of it."""

    kind: Kind
    why: str
    reports: tuple[str, ...] = ()


class FindingDocument(msgspec.Struct, frozen=True):
    """A finding, with all that a reader needs who has nothing but the document."""

    check: str
    fingerprint: str
    algorithm: str
    executor: str
    mode: str
    message: str
    meaning: str
    scenario: dict[str, Any]
    judgement: JudgementDocument
    replay: str


class LostDocument(msgspec.Struct, frozen=True):
    """A scenario that costs the subject every time it is asked."""

    scenario: dict[str, Any]
    fault: dict[str, str]
    replay: str


class RunDocument(msgspec.Struct, frozen=True, tag="run", tag_field="kind"):
    """One run of the checks on one sglang."""

    schema: int
    subject: SubjectInfo
    profile: str
    seed: int | None
    status: int
    checks: dict[str, Counts]
    findings: tuple[FindingDocument, ...]
    unknown: dict[str, str]
    losses: Losses
    lost: tuple[LostDocument, ...]
    overhead: Overhead

    @property
    def name(self) -> str:
        """How the run's sglang is called."""
        revision = f" at {self.subject.revision[:12]}" if self.subject.revision else ""
        return f"{self.subject.release or self.subject.spec}{revision}"

    @property
    def passed(self) -> bool:
        """Whether a history may hold others to this."""
        return self.status == Exit.PASSED

    @property
    def measured(self) -> dict[str, float]:
        """What a history keeps, by name of the series."""
        return {"findings": len(self.findings), "checks that could not judge": len(self.unknown)}


class TransitionDocument(Transition, frozen=True):
    """A change, with the page of what lies between the tags of the two releases."""

    compare: str = ""


class ScanDocument(msgspec.Struct, frozen=True, tag="scan", tag_field="kind"):
    """One run for each release of a range, oldest first, and every change from right to wrong or back.

    `states` has, for each fingerprint, how each run stands to it.
    """

    schema: int
    runs: tuple[RunDocument, ...]
    states: dict[str, tuple[State, ...]]
    transitions: tuple[TransitionDocument, ...]

    @property
    def passed(self) -> bool:
        """Whether a history may hold others to this."""
        return all(run.passed for run in self.runs)

    @property
    def measured(self) -> dict[str, float]:
        """What a history keeps, by name of the series."""
        return {f"{run.name} {name}": value for run in self.runs for name, value in run.measured.items()}


class AnswerDocument(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """An answer, with all that a reader needs who has nothing but the document."""

    fingerprint: str
    exact: bool
    judged: int
    error: float
    replay: str


class BisectionDocument(msgspec.Struct, frozen=True, tag="bisection", tag_field="kind"):
    """What one `harness bisect` has answered, an answer for each case."""

    schema: int
    answers: tuple[AnswerDocument, ...]


class StudyDocument(msgspec.Struct, frozen=True, tag="mutation", tag_field="kind"):
    """A mutation study, with the score of each function."""

    schema: int
    study: Study
    scores: dict[str, Score]


class HistoryDocument(msgspec.Struct, frozen=True, tag="history", tag_field="kind"):
    """The nights of a history, oldest first."""

    schema: int
    nights: tuple[Night, ...]


#: What a run ends with, and a history can keep.
Result = RunDocument | ScanDocument | ComparisonDocument | AcceptanceComparison
Document = Result | HistoryDocument | BisectionDocument | StudyDocument


def encode(document: msgspec.Struct) -> bytes:
    """`document` as indented JSON with a line feed at its end."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read_document(path: Path) -> Document:
    """The document at `path`; raises UsageError where there is none that this harness can read."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}.") from None
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no document of the harness: {error}.") from None
    if head.schema > SCHEMA:
        raise UsageError(f"{path} has schema {head.schema}; this harness reads up to {SCHEMA}: use a newer one.")
    try:
        return msgspec.json.decode(data, type=Document)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is no document of the harness: {error}.") from None


class _Head(msgspec.Struct):
    """What every document has, of whatever schema."""

    schema: int
