"""What each server option and environment switch is to the harness: an axis, fixed, a gap, or out of scope."""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from harness.scenario.session import SessionTarget

Kind = Literal["axis", "fixed", "gap", "out", "unclassified"]


class Varied(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An axis: what it changes; the field of metadata scenarios that varies it, too; and its values.

    An axis without values is one of `harness.scenario.axes`, which has them.
    """

    changes: str
    field: str = ""
    values: str = ""


class Pinned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The one value that sessions have, and why no other."""

    value: str
    why: str


class Classification(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The classes of the names, where variables that are in no table are looked for, and the kinds of target.

    `targets` says what sessions run as each, `target_gaps` which kinds they do not run, and why not.
    `gaps` and `out` are by reason. An entry there is a name, or a rule: a regular expression for whole names. A name
    decides before a rule does, and an earlier rule before a later one.
    """

    release: str
    targets: dict[SessionTarget, str]
    target_gaps: dict[str, str]
    read: list[str]
    axes: dict[str, Varied]
    fixed: dict[str, Pinned]
    gaps: dict[str, list[str]]
    out: dict[str, list[str]]


class Verdict(NamedTuple):
    """The class of a name, the entry that decides it, and the reason; of an unclassified name both are empty."""

    kind: Kind
    entry: str
    why: str


_NONE = Verdict("unclassified", "", "")


def classification() -> Classification:
    """The classification in `options.json`."""
    return msgspec.json.decode((Path(__file__).parent / "options.json").read_bytes(), type=Classification)


def verdicts(names: Iterable[str], told: Classification) -> dict[str, Verdict]:
    """The verdict on each name."""
    entries = list(_entries(told))
    exact = {verdict.entry: verdict for verdict in reversed(entries)}
    rules = [(re.compile(verdict.entry), verdict) for verdict in entries if is_rule(verdict.entry)]
    return {
        name: exact.get(name) or next((verdict for rule, verdict in rules if rule.fullmatch(name)), _NONE)
        for name in names
    }


def problems(names: Collection[str], told: Classification) -> list[str]:
    """What the classification says in vain: an entry that decides no name of any release, and a name said twice."""
    entries = [verdict.entry for verdict in _entries(told)]
    deciding = {verdict.entry for verdict in verdicts(names, told).values()}
    idle = [f"{entry} decides no name of any release: take it out" for entry in entries if entry not in deciding]
    twice = sorted({entry for entry in entries if entries.count(entry) > 1})
    return idle + [f"{entry} is said twice: leave it in one class, with one reason" for entry in twice]


def is_rule(entry: str) -> bool:
    """Whether an entry is a rule, and no name."""
    return re.fullmatch(r"\w+", entry) is None


def _entries(told: Classification) -> Iterator[Verdict]:
    yield from (Verdict("axis", name, axis.changes) for name, axis in told.axes.items())
    yield from (Verdict("fixed", name, pinned.why) for name, pinned in told.fixed.items())
    yield from (Verdict("gap", entry, why) for why, entries in told.gaps.items() for entry in entries)
    yield from (Verdict("out", entry, why) for why, entries in told.out.items() for entry in entries)
