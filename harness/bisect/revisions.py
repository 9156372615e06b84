"""What lies between two ends: the releases, and the commits of a clone; the checkout of the clone is never touched.

Commits are read with git's plumbing only. A worktree would do for a judgement, too, but it is registered in the
user's repository, and a run that is killed leaves it there; `source.resolve` unpacks the package of a commit instead.
"""

import re

import msgspec

from harness.bisect.transitions import REPOSITORY
from harness.errors import CannotJudge, UsageError
from harness.subject.clone import Clone, git, reason

#: Where a commit holds the package: sglang's repository, and one that was made from a release.
PACKAGES = ("python/sglang", "sglang")
_NUMBER = re.compile(r"\(#(\d+)\)")


class Revision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One sglang of a line. `title` is the subject of a commit, and its date; of a release there is none."""

    spec: str
    name: str
    title: str = ""

    @property
    def link(self) -> str:
        """Where it can be read: the pull request of a commit, if its subject names one."""
        number = _NUMBER.findall(self.title)
        return f"{REPOSITORY}/pull/{number[-1]}" if number else ""

    def __str__(self) -> str:
        return f"{self.name} {self.title}".strip()


def release(name: str) -> Revision:
    """A release."""
    return Revision(name, name)


def commit(clone: Clone, full: str) -> Revision:
    """A commit, called by its abbreviation, with its date and its subject."""
    shown = _read(clone, "show", "--no-patch", "--format=%h%x00%cs %s", full)
    name, title = shown.split("\0", 1)
    return Revision(f"git:{clone.directory}@{full}", name, title)


def commits_between(clone: Clone, older: str, newer: str) -> list[str]:
    """The commit that `newer` has in common with `older`, and every later one on the first-parent line to `newer`.

    Commits that leave the package as it is are left out: they cannot change an answer. Raises UsageError where the
    two have nothing in common, and where `newer` has no sglang.
    """
    base = git(clone.root, "merge-base", older, newer)
    if base.returncode != 0:
        raise UsageError(f"{older[:12]} and {newer[:12]} have no common history in {clone.directory}.")
    if all(git(clone.root, "cat-file", "-e", f"{newer}:{path}").returncode != 0 for path in PACKAGES):
        raise UsageError(f"{clone.directory} is no sglang: {newer[:12]} has neither {' nor '.join(PACKAGES)}.")
    common = base.stdout.strip()
    listed = _read(clone, "rev-list", "--first-parent", "--reverse", f"{common}..{newer}", "--", *PACKAGES)
    return [common, *listed.split()]


def _read(clone: Clone, *arguments: str) -> str:
    answer = git(clone.root, *arguments)
    if answer.returncode != 0:
        raise CannotJudge(f"git cannot read {clone.directory}: {reason(answer)}.")
    return answer.stdout.strip()
