"""Making a recording: scenario by scenario beside its final place, so that one that is killed goes on where it was.

What has been seen is appended to `RUN.partial`, arrays first and then the line that vouches for them. At the end the
files get their final form and the folder its name, by one rename.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from harness.errors import CannotJudge, UsageError
from harness.files import write_atomically
from harness.parity.recording import (
    CHUNK,
    FILES,
    MANIFEST,
    OBSERVATIONS,
    RUN,
    SCENARIOS,
    SCHEMA,
    Line,
    Manifest,
    Round,
    Run,
    listed,
    tensor_name,
)
from harness.parity.sides import Side
from harness.scenario import MetadataScenario
from harness.scenario.observation import Array, Floats, Observation, Seen

#: Scenarios that are asked at once.
BATCH = 8
ARRAYS, DRAWN = "arrays", "drawn.jsonl"

#: Told how many scenarios are done, and of how many.
Progress = Callable[[int, int], None]


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where an array lies among the arrays: its name, type and shape, and its first byte and the one past its last."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class Entry(msgspec.Struct, frozen=True):
    """One line of an unfinished recording."""

    line: Line
    places: tuple[Place, ...]


def record(side: Side, scenarios: Sequence[MetadataScenario], run: Run, folder: Path, progress: Progress) -> None:
    """Record what `side` sees of `scenarios` in `folder`, going on with an unfinished recording of the same `run`.

    Raises UsageError where `folder` is there already, or an unfinished recording is one of another run, damaged, or
    being made by another process; CannotJudge where it cannot be written.
    """
    if folder.exists():
        raise UsageError(f"{folder} is there already: name another directory, or delete it.")
    partial = folder.with_name(f"{folder.name}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        with _locked(partial):
            _begin(partial, run)
            scenarios = _begun_with(partial, scenarios)
            done = _whole_entries(partial)
            with (partial / SCENARIOS).open("ab") as lines, (partial / ARRAYS).open("ab") as arrays:
                for start in range(done, len(scenarios), BATCH):
                    progress(start, len(scenarios))
                    batch = scenarios[start : start + BATCH]
                    for number, (scenario, seen) in enumerate(zip(batch, side.observe(batch), strict=True), start):
                        _append(lines, arrays, number, scenario, seen)
            progress(len(scenarios), len(scenarios))
            _finish(partial, folder)
    except OSError as error:
        raise CannotJudge(f"cannot record in {partial}: {error.strerror or error}; run again to go on.") from error


def _locked(partial: Path) -> BinaryIO:
    """The lock of an unfinished recording, which ends with its file."""
    lock = (partial / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(f"{partial} is being recorded by another process.") from error
    return lock


def _begin(partial: Path, run: Run) -> None:
    """Note which run this is, or see that it is the one that was begun."""
    path, data = partial / RUN, msgspec.json.encode(run)
    if not path.exists():
        write_atomically(path, data)
    elif path.read_bytes() != data:
        raise UsageError(f"{partial} is an unfinished recording of another run: delete it, or record elsewhere.")


def _begun_with(partial: Path, drawn: Sequence[MetadataScenario]) -> list[MetadataScenario]:
    """The scenarios that were drawn when it was begun: Hypothesis may draw others once the harness has changed."""
    path = partial / DRAWN
    if not path.exists():
        write_atomically(path, b"\n".join(map(msgspec.json.encode, drawn)))
    try:
        return [msgspec.json.decode(line, type=MetadataScenario) for line in path.read_bytes().splitlines()]
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is damaged ({error}): delete {partial}, and record anew.") from error


def _whole_entries(partial: Path) -> int:
    """How many scenarios are recorded; what a kill has left of the next one is cut off."""
    (partial / SCENARIOS).touch()
    (partial / ARRAYS).touch()
    size = (partial / ARRAYS).stat().st_size
    count = end = kept = 0
    with (partial / SCENARIOS).open("rb") as lines:
        for data in lines:
            last = _last_byte(data, end)
            if not data.endswith(b"\n") or last is None or last > size:
                break
            count, end, kept = count + 1, last, kept + len(data)
    os.truncate(partial / SCENARIOS, kept)
    os.truncate(partial / ARRAYS, end)
    return count


def _last_byte(data: bytes, before: int) -> int | None:
    """Where the arrays of an entry end, or None where it is cut off."""
    try:
        places = msgspec.json.decode(data, type=Entry).places
    except msgspec.MsgspecError:
        return None
    return places[-1].end if places else before


def _append(
    lines: BinaryIO, arrays: BinaryIO, number: int, scenario: MetadataScenario, observation: Observation
) -> None:
    """Write the arrays of an observation, and then the entry: whoever reads the entry finds the arrays."""
    places = []
    for index, seen in enumerate(observation.seen):
        for name, array in _arrays(seen):
            dtype = "F32" if isinstance(array, Floats) else "I32"
            start = arrays.tell()
            arrays.write(array.data)
            places.append(Place(tensor_name(number, index, name), dtype, array.shape, start, arrays.tell()))
    arrays.flush()
    rounds = tuple(
        Round(
            fields=tuple(seen.fields),
            output=seen.output is not None,
            changed=seen.changed,
            never_built=seen.never_built,
            error=seen.error,
            accesses=seen.accesses,
            waits=seen.waits,
        )
        for seen in observation.seen
    )
    lines.write(msgspec.json.encode(Entry(Line(scenario, rounds, observation.fault), tuple(places))) + b"\n")
    lines.flush()


def _arrays(seen: Seen) -> Iterator[tuple[str, Array | Floats]]:
    for name, values in seen.fields.items():
        yield f"fields/{name}", values
    if seen.output is not None:
        yield "output", seen.output


def _finish(partial: Path, folder: Path) -> None:
    """Give the files their final form, and the folder its name."""
    final = partial / "final"
    shutil.rmtree(final, ignore_errors=True)
    final.mkdir()
    shutil.copyfile(partial / RUN, final / RUN)
    header: dict[str, object] = {"__metadata__": {"schema": str(SCHEMA)}}
    with (partial / SCENARIOS).open("rb") as entries, (final / SCENARIOS).open("wb") as lines:
        for data in entries:
            entry = msgspec.json.decode(data, type=Entry)
            lines.write(msgspec.json.encode(entry.line) + b"\n")
            for place in entry.places:
                offsets = (place.start, place.end)
                header[place.name] = {"dtype": place.dtype, "shape": place.shape, "data_offsets": offsets}
    # The library writes from memory only; its format is the header's length, the header, and the arrays.
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % 8)
    with (partial / ARRAYS).open("rb") as arrays, (final / OBSERVATIONS).open("wb") as tensors:
        tensors.write(np.uint64(len(encoded)).astype("<u8").tobytes() + encoded)
        shutil.copyfileobj(arrays, tensors, CHUNK)
    manifest = Manifest(SCHEMA, {name: listed(final / name) for name in FILES})
    write_atomically(final / MANIFEST, msgspec.json.encode(manifest))
    for name in FILES:
        with (final / name).open("rb") as file:
            os.fsync(file.fileno())
    final.rename(folder)
    shutil.rmtree(partial)
