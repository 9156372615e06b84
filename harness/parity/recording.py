"""A recording: what a subject saw of a list of scenarios, in a directory that anybody can read years later.

`run.json` says who was recorded and how, `scenarios.jsonl` has a line for each scenario with what was seen but the
arrays, which `observations.safetensors` has, and `manifest.json` the size and hash of these three. Nothing in it is
code, no name in it is a path, and a reader takes only what the manifest vouches for.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open

from harness.errors import UsageError
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Array, BadAccess, Changed, Fault, Floats, Observation, Seen, Wait
from harness.scenario.validity import why_invalid
from harness.subject.frames import SubjectInfo

SCHEMA = 1
MANIFEST = "manifest.json"
RUN, SCENARIOS, OBSERVATIONS = "run.json", "scenarios.jsonl", "observations.safetensors"
FILES = (RUN, SCENARIOS, OBSERVATIONS)
#: Bytes that are read at once.
CHUNK = 1 << 20


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who was recorded, and how: the same subject with the same options gives the same recording."""

    schema: int
    subject: SubjectInfo
    profile: str
    seed: int
    only: tuple[str, ...]
    scenarios: int


class Round(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A `Seen` whose arrays are named: `fields` are kept under their own names, the output where `output` says so."""

    fields: tuple[str, ...] = ()
    output: bool = False
    changed: tuple[Changed, ...] = ()
    never_built: tuple[str, ...] = ()
    error: str = ""
    accesses: tuple[BadAccess, ...] = ()
    waits: tuple[Wait, ...] = ()


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One scenario and what was seen of it."""

    scenario: MetadataScenario
    rounds: tuple[Round, ...] = ()
    fault: Fault | None = None


class Listed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the manifest: its bytes, and their sha256 in hexadecimal digits."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a recording consists of."""

    schema: int
    files: dict[str, Listed]


class _Header(msgspec.Struct):
    """The one field that every schema has."""

    schema: int


def tensor_name(scenario: int, seen: int, name: str) -> str:
    """Under which name an array of round `seen` of a scenario is kept."""
    return f"{scenario}/{seen}/{name}"


def listed(path: Path) -> Listed:
    """What a manifest says of the file at `path`; raises OSError."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return Listed(size, digest.hexdigest())


class Recording:
    """A recording as a subject: it answers what it was recorded of, and knows nothing else; a context manager."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder = folder
        self.run = run
        self.info = run.subject
        self._numbers: dict[MetadataScenario, int] = {}
        #: Where each line begins.
        self._starts: list[int] = []
        arrays: Any = safe_open(folder / OBSERVATIONS, framework="np")
        self._arrays = arrays
        self._names: set[str] = set(arrays.keys())
        self._lines = (folder / SCENARIOS).open("rb")

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The recording in `folder`, after all of it was checked; raises UsageError if it is not whole."""
        _check_files(folder)
        try:
            run = msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
            recording = cls(folder, run)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError, SafetensorError) as error:
            raise _refused(folder, f"{_first_line(error)}") from error
        try:
            recording._index()
        except BaseException:
            recording.close()
            raise
        return recording

    @property
    def scenarios(self) -> tuple[MetadataScenario, ...]:
        """What was recorded, in order."""
        return tuple(self._numbers)

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        """What was seen of each scenario; of one that was not recorded, a fault."""
        return [self._observation(scenario) for scenario in scenarios]

    def _observation(self, scenario: Scenario) -> Observation:
        number = self._numbers.get(scenario) if isinstance(scenario, MetadataScenario) else None
        if number is None:
            return Observation(fault=Fault("unsupported", f"the recording {self.folder} has no such scenario"))
        self._lines.seek(self._starts[number])
        line = msgspec.json.decode(self._lines.readline(), type=Line)
        return Observation(tuple(self._seen(number, *one) for one in enumerate(line.rounds)), fault=line.fault)

    def _seen(self, number: int, index: int, one: Round) -> Seen:
        def array(name: str) -> np.ndarray:
            values: np.ndarray = self._arrays.get_tensor(tensor_name(number, index, name))
            return values

        return Seen(
            fields={name: Array.of(array(f"fields/{name}")) for name in one.fields},
            changed=one.changed,
            never_built=one.never_built,
            error=one.error,
            output=Floats.of(array("output")) if one.output else None,
            accesses=one.accesses,
            waits=one.waits,
        )

    def _index(self) -> None:
        """Read every line once, and see that it can be, and that the arrays it names are there."""
        decoder = msgspec.json.Decoder(Line)
        while True:
            start = self._lines.tell()
            data = self._lines.readline()
            if not data:
                break
            number = len(self._starts)
            try:
                line = decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise _refused(self.folder, f"line {number + 1} of {SCENARIOS}: {_first_line(error)}") from error
            if problem := why_invalid(line.scenario):
                raise _refused(
                    self.folder, f"line {number + 1} of {SCENARIOS} has a scenario that cannot be: {problem}"
                )
            self._check_arrays(number, line)
            self._numbers[line.scenario] = number
            self._starts.append(start)
        if not len(self._numbers) == len(self._starts) == self.run.scenarios:
            raise _refused(self.folder, f"{SCENARIOS} has {len(self._numbers)} scenarios and not {self.run.scenarios}")

    def _check_arrays(self, number: int, line: Line) -> None:
        for index, one in enumerate(line.rounds):
            named = {f"fields/{name}": "I32" for name in one.fields} | ({"output": "F32"} if one.output else {})
            for name, dtype in named.items():
                full = tensor_name(number, index, name)
                if full not in self._names or self._arrays.get_slice(full).get_dtype() != dtype:
                    raise _refused(self.folder, f"{OBSERVATIONS} has no {full} of type {dtype}")

    def close(self) -> None:
        """Let go of the files."""
        self._lines.close()
        self._arrays.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_files(folder: Path) -> None:
    """That the manifest can be read, names what a recording has and nothing else, and each file is as it says."""
    try:
        data = (folder / MANIFEST).read_bytes()
        schema = msgspec.json.decode(data, type=_Header).schema
        if schema > SCHEMA:
            raise UsageError(
                f"{folder} has recording schema {schema}, and this harness reads up to {SCHEMA}: update the harness."
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except OSError as error:
        raise _refused(folder, f"{MANIFEST} cannot be read ({error.strerror or error})") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _refused(folder, f"{MANIFEST}: {_first_line(error)}") from error
    if foreign := sorted(set(manifest.files) - set(FILES)):
        raise _refused(folder, f"{MANIFEST} names {foreign[0]!r}, which no recording has")
    if schema != SCHEMA or msgspec.json.encode(manifest) != data:
        raise _refused(folder, f"{MANIFEST} is not as it was written")
    for name in FILES:
        path = folder / name
        if name not in manifest.files:
            raise _refused(folder, f"{MANIFEST} does not list {name}")
        if path.is_symlink() or not path.is_file():
            raise _refused(folder, f"{name} is missing, or no file")
        try:
            found = listed(path)
        except OSError as error:
            raise _refused(folder, f"{name} cannot be read ({error.strerror or error})") from error
        if found != manifest.files[name]:
            raise _refused(folder, f"{name} has not the size and the hash that {MANIFEST} says")


def _refused(folder: Path, why: str) -> UsageError:
    return UsageError(f"{folder} is no whole recording: {why}; record it again, or fetch it again.")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
