"""From what the user names as ends to the line of revisions between them."""

from pathlib import Path
from typing import NamedTuple

from harness.bisect.revisions import Revision, commit, commits_between, release
from harness.errors import UsageError
from harness.subject import versions, wheels
from harness.subject.clone import Clone
from harness.subject.source import is_release, split_git_spec


class Line(NamedTuple):
    """Revisions, oldest first, whose first and last are the ends; of commits the clone that holds them."""

    revisions: list[Revision]
    clone: Clone | None = None


def line_between(older: str, newer: str, repository: Path | None) -> Line:
    """The line between two specs: releases, or commits of one clone; a word that is no release is one of `repository`.

    The first commit of a line is the last one that both ends have in common, so that `older` may lie on a release
    branch. Raises UsageError for ends that are equal, in the wrong order, or on no line together.
    """
    clone = Clone(repository) if repository is not None else None
    if is_release(older) and is_release(newer):
        return Line([release(name) for name in _releases(older, newer)])
    first, last = _commit(older, clone), _commit(newer, clone)
    if first is None or last is None or first[0].root != last[0].root:
        raise UsageError(
            f"{older} and {newer} are no two ends of one line: name two releases, or two commits of one clone as "
            "git:DIR@REV."
        )
    return commit_line(first[0], first[1], last[1])


def commit_line(clone: Clone, older: str, newer: str) -> Line:
    """The commits between two, by their hashes."""
    if older == newer:
        raise UsageError(f"both ends are {older[:12]}: name two different ones.")
    if commits_between(clone, newer, older)[0] == newer:
        raise UsageError(f"{newer[:12]} comes before {older[:12]}: {_WRONG_ORDER}")
    found = commits_between(clone, older, newer)
    return Line([commit(clone, one) for one in found], clone)


_WRONG_ORDER = "--good comes first, and with --fixed, which finds what fixed it, --bad does."


def _releases(older: str, newer: str) -> list[str]:
    first, last = versions.parse(older), versions.parse(newer)
    names = wheels.releases_between(str(min(first, last)), str(max(first, last)))
    if first == last:
        raise UsageError(f"both ends are {older}: name two different ones.")
    if first > last:
        raise UsageError(f"{newer} comes before {older}: {_WRONG_ORDER}")
    return names


def _commit(spec: str, clone: Clone | None) -> tuple[Clone, str] | None:
    if spec.startswith("git:"):
        directory, name = split_git_spec(spec)
        clone = Clone(directory)
        return clone, clone.commit(name)
    if clone is None:
        return None
    return clone, clone.tagged(spec) if is_release(spec) else clone.commit(spec)
