"""A made-up clone of sglang: 60 commits from one version of a file to another, hunk by hunk, with others between."""

import os
import subprocess
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path

#: What every commit is made with, so that hashes and dates are the same each time.
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Nobody"), ("EMAIL", "nobody@example.invalid"), ("DATE", "2026-07-01T12:00:00Z"))
} | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(directory: Path, *arguments: str) -> str:
    """What git answers in `directory`."""
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | IDENTITY
    ).stdout.rstrip()


def hunk_by_hunk(older: str, newer: str) -> list[str]:
    """The versions between two texts, when their differences are applied one after the other from the top."""
    before, after = older.splitlines(keepends=True), newer.splitlines(keepends=True)
    changes = [
        code for code in SequenceMatcher(None, before, after, autojunk=False).get_opcodes() if code[0] != "equal"
    ]
    versions = []
    for count in range(1, len(changes) + 1):
        text, at = [], 0
        for _, start, end, first, last in changes[:count]:
            text += before[at:start] + after[first:last]
            at = end
        versions.append("".join(text + before[at:]))
    assert versions[-1] == newer
    return versions


def sixty_commits(clone: Path, file: str, older: str, newer: str, culprit: str, broken: int = 0) -> tuple[str, str]:
    """Commit the way from `older` to `newer`, and return the first commit and the one that brings `culprit`.

    60 commits with the first: one for each hunk of `file`, spread over commits that touch nothing of the package, or
    only a comment in it. As many as `broken` cannot be imported, two before the culprit's, and
    as many a little later.
    """
    first = _commit(clone, {file: older}, "[NPU] Support DFLASH (#100)")
    versions = hunk_by_hunk(older, newer)
    spread = {round((number + 1) * 58 / len(versions)): text for number, text in enumerate(versions)}
    guilty = min(place for place, text in spread.items() if culprit in text)
    breaking = {guilty - 3 - number for number in range(broken)} | {guilty + 4 + number for number in range(broken)}
    found, text = "", older
    for place in range(1, 60):
        text = spread.get(place, text)
        shown = f"this is a merge conflict\n{text}" if place in breaking else text
        changes = {file: shown, "docs/news.md" if place % 3 else "python/sglang/news.py": f"# change {place}\n"}
        commit = _commit(clone, changes, f"Change {place} (#{1000 + place})")
        if place == guilty:
            found = commit
    return first, found


def _commit(clone: Path, files: dict[str, str], subject: str) -> str:
    for name, text in files.items():
        path = clone / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        git(clone, "add", "--", name)
    git(clone, "commit", "--quiet", "--allow-empty", "--message", subject)
    return git(clone, "rev-parse", "HEAD")


def everything_of(clone: Path) -> dict[str, bytes | str]:
    """Whatever a command could have touched: every file that is checked out, the index, HEAD and the worktrees."""
    files: Iterator[Path] = (path for path in clone.rglob("*") if path.is_file() and ".git" not in path.parts)
    state: dict[str, bytes | str] = {str(path): path.read_bytes() for path in files}
    for name in ("status --porcelain", "rev-parse HEAD", "worktree list", "stash list", "branch --list"):
        state[name] = git(clone, *name.split())
    return state
