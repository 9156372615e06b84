"""A case file: one scenario with what is known about it, in JSON, or an array of such; `harness replay` takes it."""

from collections.abc import Collection
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.files import write_atomically
from harness.scenario import Scenario
from harness.scenario.validity import why_invalid

SCHEMA = 1


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A scenario and its history.

    `check` and `fingerprint` name the finding it reproduces, `sglang` the release it was found in, `wrong_in` every
    release that is known to be wrong and `reports` the public reports (`sglang#31739`). A case without a fingerprint
    is a sentinel: nothing that `check` finds, or any check if it names none, is known of it.
    """

    schema: int
    scenario: Scenario
    check: str = ""
    fingerprint: str = ""
    sglang: str = ""
    note: str = ""
    reports: tuple[str, ...] = ()
    wrong_in: tuple[str, ...] = ()

    def shows_in(self, fingerprints: Collection[str]) -> bool:
        """Whether the scenario is wrong where its check found `fingerprints`: with its own, or a sentinel with any."""
        return self.fingerprint in fingerprints if self.fingerprint else bool(fingerprints)


class _Header(msgspec.Struct):
    """The one field that every schema has."""

    schema: int


def read_case(path: Path) -> Case:
    """Read and validate a case file of one scenario; raises UsageError with one sentence for anything else."""
    return _case(path, _read(path))


def read_cases(path: Path) -> tuple[Case, ...]:
    """Read and validate a file of one case, or of an array of them; raises UsageError for anything that is neither."""
    data = _read(path)
    if not data.lstrip().startswith(b"["):
        return (_case(path, data),)
    try:
        each = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no case file of this harness, or is cut short: {error}.") from error
    if not each:
        raise UsageError(f"{path} is no case file of this harness: it is an array without a case.")
    return tuple(_case(path, bytes(one)) for one in each)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a null byte is a ValueError
        raise UsageError(f"cannot read the case {path}: {getattr(error, 'strerror', None) or error}.") from error


def _case(path: Path, data: bytes) -> Case:
    try:
        schema = msgspec.json.decode(data, type=_Header).schema
        if schema > SCHEMA:
            raise UsageError(
                f"{path} has case schema {schema}, and this harness reads up to {SCHEMA}: update the harness."
            )
        if schema < 1:
            raise UsageError(f"{path} has case schema {schema}, and the first one is 1.")
        case = msgspec.json.decode(data, type=Case)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no case file of this harness, or is cut short: {error}.") from error
    if problem := why_invalid(case.scenario):
        raise UsageError(f"{path} holds a scenario that cannot be: {problem}.")
    return case


def write_case(path: Path, case: Case) -> None:
    """Write `case` to `path`, whole or not at all."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(case), indent=2) + b"\n")
