"""What a bisection has decided so far, in one JSON file: a run that is killed goes on where it was."""

from hashlib import sha256
from pathlib import Path

import msgspec

from harness.bisect.decision import Decision, Subject
from harness.bisect.identity import harness_digest, sglang_digest, surroundings_digest
from harness.files import write_atomically
from harness.scenario.case import Case
from harness.subject.source import Source

SCHEMA = 1
FOLDER = Path(".harness", "bisect")


class _Page(msgspec.Struct):
    """The file: `asked` is the digest of the question, decisions are by the sglang's identity.

    `measured` are those that say how often the finding shows there, and not only whether it does.
    """

    schema: int
    asked: str
    decisions: dict[str, Decision] = {}
    measured: dict[str, Decision] = {}


class Notebook:
    """The decisions of one case; they count for the same case, rate, harness and surroundings, and the same sglang.

    `path` is kept for the user to look at; what is in it and belongs to another question is forgotten.
    """

    def __init__(
        self, case: Case, rate: float | None, subject: Subject, fresh: bool = False, folder: Path = FOLDER
    ) -> None:
        question = [harness_digest(), surroundings_digest(), repr(rate), repr(subject)]
        asked = sha256("\n".join(question).encode() + msgspec.json.encode(case)).hexdigest()
        self.path = folder / f"{asked[:16]}.json"
        self.page = _Page(SCHEMA, asked)
        if not fresh and (earlier := _read(self.path)) is not None and earlier.asked == asked:
            self.page = earlier

    def recall(self, source: Source, measured: bool = False) -> Decision | None:
        """What was decided of `source`, if it was; where it has to be `measured`, no less than that."""
        identity = _identity(source)
        return self.page.measured.get(identity) or (None if measured else self.page.decisions.get(identity))

    def note(self, source: Source, decision: Decision, measured: bool = False) -> None:
        """Keep a decision; it is in the file when this returns."""
        page = self.page.measured if measured else self.page.decisions
        page[_identity(source)] = decision
        write_atomically(self.path, msgspec.json.format(msgspec.json.encode(self.page), indent=2) + b"\n")


def _identity(source: Source) -> str:
    """A commit is what it is; of a release, it counts what lies in the cache."""
    return source.revision if source.kind == "git" else f"{source.release}-{sglang_digest(source)[:16]}"


def _read(path: Path) -> _Page | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Page)
    except (OSError, msgspec.DecodeError):
        return None
