"""The two sides of a comparison: a live subject, or a recording of one."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from harness.errors import UsageError
from harness.parity.recording import MANIFEST, Recording
from harness.scenario import Scenario
from harness.scenario.observation import Observation
from harness.subject.cuda.prepare import FA3_EMULATED, FLASHINFER_EMULATED, INTERPRETED
from harness.subject.frames import SubjectInfo
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor

#: What users call a subject, and the device that it runs on.
DEVICES = {
    "ascend": "emulated",
    "npu": "npu",
    "triton": INTERPRETED,
    "cuda": "cuda",
    "fa3": "fa3",
    "fa3-emulated": FA3_EMULATED,
    "flashinfer": "flashinfer",
    "flashinfer-emulated": FLASHINFER_EMULATED,
}


class Side(Protocol):
    """Who answers for one side."""

    info: SubjectInfo

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        """One observation for each scenario, in order."""


def device_of(subject: str) -> str:
    """The device of the subject called `subject`; raises UsageError for any other word."""
    if subject not in DEVICES:
        raise UsageError(f"there is no subject {subject!r}: the subjects are {', '.join(DEVICES)}.")
    return DEVICES[subject]


def opened(
    word: str, through: Sequence[str], tell: Callable[[str], None]
) -> AbstractContextManager["Recording | Supervisor"]:
    """The side that `word` names: `SUBJECT@SPEC`, or the directory of a recording; `through` starts a live one.

    Raises UsageError where it names neither, or a recording that is not whole; CannotJudge where a subject does not
    start.
    """
    if (Path(word) / MANIFEST).exists() or (Path(word).is_dir() and "@" not in word):
        return Recording.open(Path(word))
    subject, at, spec = word.partition("@")
    if not at:
        raise UsageError(f"{word!r} is no side: name a recording's directory, or SUBJECT@SPEC such as ascend@0.5.18.")
    return Supervisor(resolve(spec, tell), device_of(subject), through)
