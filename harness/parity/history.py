"""The history of nightly runs: one line of JSON a night, appended and never rewritten.

JSON lines and not SQLite: a line that a crash has cut off can be told from a whole one; the file can lie in a git
repository or among a job's artefacts, and two of them are joined with `cat`; and a thousand nights are a megabyte.
"""

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.errors import CannotJudge, UsageError
from harness.parity.steps import Step, steps

SCHEMA = 1


class Night(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One nightly run: when, of what, whether everything passed, and what was measured, by name of the series."""

    schema: int
    when: datetime
    subject: str
    passed: bool
    values: dict[str, float]


class Trend(NamedTuple):
    """One series along the nights that have it.

    `baseline` is the mean of those nights since the last step that passed; None where none has: a failed run never
    becomes what others are held to.
    """

    subject: str
    name: str
    nights: tuple[Night, ...]
    steps: tuple[Step, ...]
    baseline: float | None

    @property
    def values(self) -> list[float]:
        """What was measured, oldest first."""
        return [night.values[self.name] for night in self.nights]


def append(path: Path, night: Night) -> None:
    """Add `night` to the file at `path`, which need not be there yet; it is on disk afterwards.

    Raises UsageError where the file is no history, CannotJudge where it cannot be written.
    """
    read(path, missing_ok=True)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(msgspec.json.encode(night) + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise CannotJudge(f"cannot write {path}: {error.strerror or error}.") from error


def read(path: Path, missing_ok: bool = False) -> list[Night]:
    """The nights in the file at `path`, in the order of their times; raises UsageError where it is no history."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if missing_ok:
            return []
        raise UsageError(f"there is no history at {path}: `harness history --add RESULT.json` begins one.") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}.") from None
    nights = [_night(path, number, line) for number, line in enumerate(data.splitlines(), 1)]
    if data and not data.endswith(b"\n"):
        raise UsageError(f"{path}:{len(nights)} has no end: a writer was cut off; delete that line.")
    return sorted(nights, key=lambda night: night.when)


def _night(path: Path, number: int, line: bytes) -> Night:
    try:
        night = msgspec.json.decode(line, type=Night)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path}:{number} is no night of a history: {error}; delete that line.") from None
    if night.schema > SCHEMA:
        raise UsageError(f"{path}:{number} has schema {night.schema}; this harness reads up to {SCHEMA}.")
    return night


def trends(nights: Sequence[Night]) -> list[Trend]:
    """One trend for each series of each subject."""
    names = dict.fromkeys((night.subject, name) for night in nights for name in night.values)
    return [
        _trend(subject, name, [night for night in nights if night.subject == subject and name in night.values])
        for subject, name in names
    ]


def _trend(subject: str, name: str, nights: Sequence[Night]) -> Trend:
    found = steps([night.values[name] for night in nights])
    since = found[-1].night if found else 0
    passed = [night.values[name] for night in nights[since:] if night.passed]
    return Trend(subject, name, tuple(nights), tuple(found), sum(passed) / len(passed) if passed else None)
