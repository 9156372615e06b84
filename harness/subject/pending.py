"""What a subject has been asked and has not answered yet, on disk: it is there after whatever happens.

One folder per subject, locked as long as its harness lives. A folder that nobody locks and that still holds scenarios
belonged to a harness, or to a machine, that ended before the answer.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.errors import CannotJudge
from harness.files import safe_name, write_atomically
from harness.scenario import Scenario
from harness.scenario.case import SCHEMA, Case
from harness.subject.cuda.prepare import INTERPRETING
from harness.subject.source import Source

FOLDER = Path(".harness", "pending")
SCENARIOS = "asked.json"
SUBJECT = "subject.json"


class Unanswered(NamedTuple):
    """Scenarios that never got an answer: their file, which `harness replay` takes, and who was asked."""

    path: Path
    spec: str
    device: str


class Pending:
    """The scenarios that one subject is at.

    On a real device they are on disk before the device gets them, since that may take the machine with it. An emulated
    or interpreted one is an ordinary process: what the operating system was told outlives it, and the harness.
    """

    def __init__(self, source: Source, device: str, folder: Path = FOLDER) -> None:
        self.release = source.release
        self.durable = device != "emulated" and device not in INTERPRETING
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _locked(folder):
                self.folder = Path(tempfile.mkdtemp(dir=folder, prefix=f"{safe_name(source.release or source.spec)}-"))
                self.lock = contextlib.ExitStack()
                self.lock.enter_context(_locked(self.folder))
        except OSError as error:
            raise CannotJudge(
                f"cannot note in {folder} what the subject is asked: {error.strerror or error}; run the harness in a "
                "folder that can be written to."
            ) from error
        asked = {"spec": source.spec, "device": device}
        write_atomically(self.folder / SUBJECT, msgspec.json.encode(asked), durable=False)

    @property
    def path(self) -> Path:
        """The file of what is asked."""
        return self.folder / SCENARIOS

    def write(self, scenarios: Sequence[Scenario]) -> None:
        """Note that `scenarios` are about to be asked: a case, or an array of cases where they share a frame."""
        note = "asked, and not answered"
        cases = [Case(schema=SCHEMA, scenario=scenario, sglang=self.release, note=note) for scenario in scenarios]
        data = msgspec.json.encode(cases[0] if len(cases) == 1 else cases)
        write_atomically(self.path, data, durable=self.durable)

    def clear(self) -> None:
        """The answer came, or it is known that none will."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Take the folder away, unless something in it was never answered."""
        if not self.path.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.close()


def unanswered(folder: Path = FOLDER) -> list[Unanswered]:
    """What harnesses that are no more have left in `folder`; of those that left nothing, the folder is removed."""
    left = []
    with contextlib.suppress(OSError), _locked(folder):
        for own in sorted(folder.iterdir()):
            with contextlib.suppress(OSError, msgspec.DecodeError, KeyError), _locked(own, wait=False):
                if not (own / SCENARIOS).exists():
                    shutil.rmtree(own, ignore_errors=True)
                    continue
                subject = msgspec.json.decode((own / SUBJECT).read_bytes(), type=dict[str, str])
                left.append(Unanswered(own / SCENARIOS, subject["spec"], subject["device"]))
    return left


@contextlib.contextmanager
def _locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of `folder`; raises OSError where there is none to have."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)
