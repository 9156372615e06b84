"""A pip that answers at once, without a network."""

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.subject import package_index

OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to establish a "
    "new connection: [Errno -3] Temporary failure in name resolution')'\n"
    "ERROR: Could not find a version that satisfies the requirement sglang==1 (from versions: none)\n"
    "ERROR: No matching distribution found for sglang==1\n"
)


def _answer(returncode: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


def hand_over(wheel: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `pip download` does when called with `arguments`."""
    shutil.copy(wheel, arguments[arguments.index("-d") + 1])
    return _answer(0)


def deliver(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> list[tuple[str, ...]]:
    """Make pip download `wheel`; returns the calls of pip, as they come."""
    calls: list[tuple[str, ...]] = []

    def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        calls.append(arguments)
        return hand_over(wheel, *arguments)

    monkeypatch.setattr(package_index, "_run_pip", run_pip)
    return calls


def reply(monkeypatch: pytest.MonkeyPatch, *, returncode: int = 0, stdout: str = "", stderr: str = "") -> None:
    """Make pip answer every call with this."""
    monkeypatch.setattr(package_index, "_run_pip", lambda *arguments: _answer(returncode, stdout, stderr))


def list_releases(monkeypatch: pytest.MonkeyPatch, *releases: str) -> None:
    reply(monkeypatch, stdout=f"sglang ({releases[0]})\nAvailable versions: {', '.join(releases)}\n")
