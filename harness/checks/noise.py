"""The measured noise floor: how far a right answer may lie from float64."""

from functools import cache
from pathlib import Path

import msgspec

import harness

#: Beside the package in a clone.
FILE = Path(harness.__file__).parent.parent / "fixtures" / "noise_floor.json"
#: How many times the floor an error may be: the floor is the largest of many, and the next one may be larger.
FACTOR = 8.0


class Floor(msgspec.Struct, frozen=True):
    """The largest error that a right subject showed, where and when it was measured, and over how much.

    `repeated` is the largest difference between two runs of the same scenarios on that device (A/A), where it was
    measured.
    """

    largest_error: float
    source: str
    date: str
    rows: int
    repeated: float | None = None


@cache
def floors() -> dict[str, Floor]:
    """Every floor of the data file, by `device/dtype`; raises FileNotFoundError where there is no such file."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Floor])


def bound(name: str) -> float:
    """The error from which on an output is wrong; raises KeyError where nothing was measured under `name`."""
    return FACTOR * floors()[name].largest_error
