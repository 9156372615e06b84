"""A git repository on this machine, of which only the object store is read: no checkout is ever touched."""

import os
import subprocess
from pathlib import Path

from harness.errors import UsageError

# Set by git in its hooks; each would make `git -C DIR` answer for another repository.
_REDIRECTIONS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


def git(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What git answers in `directory`; status 127 where there is no git."""
    command = ["git", "-C", str(directory), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in _REDIRECTIONS}
    try:
        return subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, returncode=127, stdout="", stderr="git is not installed")


def reason(answer: subprocess.CompletedProcess[str]) -> str:
    """Why git failed, as the end of a sentence."""
    lines = answer.stderr.strip().splitlines() or ["git gave no reason"]
    return lines[0].removeprefix("fatal: ").rstrip(".")


class Clone:
    """The repository around `directory`; raises UsageError where there is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().resolve()
        if not self.directory.is_dir():
            raise UsageError(f"{directory} is no directory: name a clone of sglang.")
        opened = git(self.directory, "rev-parse", "--absolute-git-dir")
        if opened.returncode != 0:
            raise UsageError(
                f"{directory} cannot be read as a git repository ({reason(opened)}): name a clone of sglang."
            )
        # Not the directory itself: seen from a subdirectory, git would look for the paths below that one.
        self.root = Path(opened.stdout.strip())

    def commit(self, name: str) -> str:
        """The full hash of the commit that `name` means; raises UsageError for a name that means none."""
        commit = self._verified(name)
        if commit is None:
            raise UsageError(f"{self.directory} has no revision {name!r}: name a commit, a tag or a branch of it.")
        return commit

    def tagged(self, release: str) -> str:
        """The commit of a release's tag; raises UsageError where there is none."""
        commit = self._verified(f"refs/tags/v{release}")
        if commit is None:
            raise UsageError(
                f"{self.directory} has no tag v{release}: fetch the tags of sglang, or name both ends as "
                f"git:{self.directory}@REV."
            )
        return commit

    def _verified(self, name: str) -> str | None:
        # With its suffix, no name that begins with a dash is an option for git.
        found = git(self.root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        return found.stdout.strip() if found.returncode == 0 else None
