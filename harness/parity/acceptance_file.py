"""The file of an acceptance run: JSON lines, a header first.

Records are appended as they come, each by one write, so a run that was ended goes on where it stopped.
"""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from harness.errors import CannotJudge, UsageError
from harness.files import write_atomically
from harness.parity.acceptance_run import (
    SCHEMA,
    Ended,
    Header,
    Record,
    Run,
    Scored,
    Setting,
    Step,
    assembled,
)


class _Schema(msgspec.Struct):
    """The one field that every schema has."""

    schema: int


def write(path: Path, header: Header, records: Iterable[Record] = ()) -> None:
    """Write a run, or the beginning of one, whole or not at all."""
    write_atomically(path, b"".join(msgspec.json.encode(line) + b"\n" for line in (header, *records)))


def append(path: Path, record: Record) -> None:
    """Add a record by one write; raises CannotJudge where the disk does not take it."""
    try:
        with path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(record) + b"\n")
    except OSError as error:
        raise CannotJudge(f"cannot write {path}: {error.strerror or error}.") from error


def drop_torn_line(path: Path) -> None:
    """Take away a last line that was not written to its end, so that records can be appended."""
    data = path.read_bytes()
    if not data.endswith(b"\n"):
        write_atomically(path, data[: data.rfind(b"\n") + 1])


def read(path: Path) -> Run:
    """Read and validate a run; a last line that was not written to its end is left out.

    Raises UsageError, with one sentence, where the file is missing, broken or of a newer schema.
    """
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        raise UsageError(f"cannot read the run {path}: {getattr(error, 'strerror', None) or error}.") from error
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise UsageError(f"{path} is no acceptance run: its first line is missing or cut short.")
    header = _header(path, lines[0])
    records = [_record(path, place, line, header.setting) for place, line in enumerate(lines[1:], 2)]
    return assembled(path, header, records)


def _header(path: Path, line: bytes) -> Header:
    try:
        schema = msgspec.json.decode(line, type=_Schema).schema
        if schema != SCHEMA:
            raise UsageError(f"{path} has run schema {schema}, and this harness reads {SCHEMA}.")
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no acceptance run of this harness: {error}.") from error


def _record(path: Path, place: int, line: bytes, setting: Setting) -> Record:
    try:
        record: Record = msgspec.json.decode(line, type=Record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}, line {place}, is no record of an acceptance run: {error}.") from error
    if problem := _why_wrong(record, setting):
        raise UsageError(f"{path}, line {place}, cannot be: {problem}.")
    return record


def _why_wrong(record: Record, setting: Setting) -> str:
    """Why a record cannot be one of a run with this setting, or nothing."""
    if isinstance(record, Ended):
        return ""
    if not 0 <= record.number < setting.count:
        return f"it is of prompt {record.number}, and there are {setting.count}"
    if isinstance(record, Scored):
        return "" if len(record.choices) == len(record.gaps) else "it has not one gap for each choice"
    most = setting.draft_tokens - 1
    if isinstance(record, Step):
        sane = 0 <= record.correct <= most and record.start >= 0
        return "" if sane else f"it accepts {record.correct} of {most} drafts after {record.start} tokens"
    accepted = sum(number * times for number, times in enumerate(record.histogram))
    if min((record.verifies, record.correct, record.proposed, *record.histogram)) < 0:
        return "it counts below zero"
    if len(record.histogram) > most + 1:
        return f"its histogram goes up to {len(record.histogram) - 1} of {most} drafts"
    if sum(record.histogram) != record.verifies or accepted != record.correct:
        return (
            f"its histogram has {sum(record.histogram)} verifies and {accepted} correct drafts, and it counts "
            f"{record.verifies} and {record.correct}"
        )
    return ""
