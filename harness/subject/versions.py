"""The version numbers of sglang's releases: which words are some, and their order."""

from bisect import bisect
from collections.abc import Iterable, Sequence

from packaging.version import InvalidVersion, Version

from harness.errors import UsageError

FIRST_RELEASE = "0.5.15"
"""The oldest release a range starts from when the user names none."""


def parse(release: str) -> Version:
    """The version that a word of the user's names.

    Raises:
        UsageError: no version number.
    """
    try:
        return Version(release)
    except InvalidVersion as error:
        raise UsageError(f"{release!r} is no release of sglang: name one like {FIRST_RELEASE}.") from error


def ascending(names: Iterable[str]) -> list[str]:
    """The valid versions among `names`, each once, oldest first."""
    versions = set()
    for name in names:
        try:
            versions.add(Version(name))
        except InvalidVersion:
            continue
    return [str(version) for version in sorted(versions)]


def final(names: Iterable[str]) -> list[str]:
    """The final and post releases among `names`, each once, oldest first."""
    return [name for name in ascending(names) if not Version(name).is_prerelease]


def nearest(version: Version, known: Sequence[str]) -> str:
    """Tells the releases around `version` among `known`, which are oldest first."""
    place = bisect([Version(name) for name in known], version)
    return f"the nearest are {', '.join(known[max(0, place - 3) : place + 3])}"
