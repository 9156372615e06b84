"""The margins within which acceptance counts as the same: data with source and date, in acceptance_margins.json."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import UsageError

#: How the steps that are compared come about: each run goes its own way, or both are put to the same prefixes.
Design = Literal["replay", "free"]
DESIGNS: tuple[Design, ...] = ("replay", "free")
FILE = Path(__file__).with_name("acceptance_margins.json")


class Margin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Relative difference of the acceptance length that counts as none, and the prompts that it was planned for."""

    margin: float
    prompts: int
    source: str
    date: str


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number with where it is from."""

    value: float
    source: str
    date: str


class Margins(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file. `near_tie` has, by `device/dtype`, the gap in nats below which either of two tokens is right.

    `allowance` is the part of the acceptance length that the numerics of one side alone may cost.
    """

    profiles: Mapping[str, Mapping[Design, Margin]]
    least_prompts: Number
    noise_factor: Number
    allowance: Number
    near_tie: Mapping[str, Number]


@cache
def margins() -> Margins:
    """The margins of this harness."""
    return msgspec.json.decode(FILE.read_bytes(), type=Margins)


def margins_of(profile: str) -> Mapping[Design, Margin]:
    """The margins of a profile; raises UsageError for one that there is not."""
    known = margins().profiles
    if profile not in known:
        raise UsageError(f"there are no margins {profile!r}: there are {', '.join(known)}.")
    return known[profile]
