"""The names of the options and switches of each release, as differences from one to the next.

A release that is out does not change, so `history.json` keeps what was read of it; only the newest is read again.
"""

from collections.abc import Collection, Mapping
from itertools import takewhile
from pathlib import Path

import msgspec

from harness.subject.versions import parse

FILE = Path(__file__).parent / "history.json"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a release has that the one before lacks, and the other way round; the first release adds all it has."""

    added: list[str]
    gone: list[str]


History = Mapping[str, Change]


def history() -> dict[str, Change]:
    """What is recorded, oldest release first."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Change])


def write(changes: History) -> None:
    """Record `changes`."""
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(changes), indent=2) + b"\n")


def names(changes: History) -> dict[str, frozenset[str]]:
    """The names that each release has."""
    found: dict[str, frozenset[str]] = {}
    known: frozenset[str] = frozenset()
    for release, change in changes.items():
        known = found[release] = known - frozenset(change.gone) | frozenset(change.added)
    return found


def with_release(changes: History, release: str, found: Collection[str]) -> dict[str, Change]:
    """`changes` up to the release before `release`, and that release with the names that were `found` in it."""
    before = dict(takewhile(lambda entry: parse(entry[0]) < parse(release), changes.items()))
    known = next(reversed(names(before).values()), frozenset())
    return before | {release: Change(sorted(set(found) - known), sorted(known - set(found)))}


def releases_with(name: str, having: Mapping[str, Collection[str]]) -> str:
    """Which of the releases have a name, as words; releases between them that lack it are not told."""
    releases = list(having)
    with_name = [release for release in releases if name in having[release]]
    first, last = with_name[0], with_name[-1]
    if last != releases[-1]:
        return first if first == last else f"{first} to {last}"
    return "all" if first == releases[0] else f"from {first}"
