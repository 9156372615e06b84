"""The package index that pip is configured for: which releases of sglang it offers, and their wheels.

Environment: `HARNESS_OFFLINE=1` forbids the network.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from harness.errors import CannotJudge, HarnessError, UsageError
from harness.subject import versions

# What pip prints when the index did not answer. It goes on to print "No matching distribution found" too, so
# these are looked for first. "from versions: none" is that case with pip's retries turned off.
_NO_NETWORK = re.compile(
    r"Failed to establish a new connection|Max retries|NameResolutionError|ProxyError|SSLError|Timeout"
    r"|timed out|Connection (?:refused|reset|aborted|broken)|connection broken|Network is unreachable"
    r"|ProtocolError|IncompleteRead|HTTP error \d|\d Server Error|from versions: none",
    re.IGNORECASE,
)
_NO_SUCH_RELEASE = re.compile(r"No matching distribution found|Could not find a version", re.IGNORECASE)


def available_releases() -> list[str]:
    """The final and post releases that the package index offers for this Python and platform, oldest first.

    Raises:
        CannotJudge: the index cannot be reached, or the network is forbidden.
    """
    if _offline():
        raise CannotJudge("HARNESS_OFFLINE forbids asking the package index which releases there are: unset it.")
    answer = _run_pip("index", "versions", "sglang")
    listed = re.search(r"^Available versions:(.*)$", answer.stdout, re.MULTILINE)
    if answer.returncode != 0 or listed is None:
        # Every index that answers has some sglang, so that pip found none means that none answered.
        unreachable = _NO_NETWORK.search(answer.stderr) or _NO_SUCH_RELEASE.search(answer.stderr)
        reason = "it cannot be reached" if unreachable else _last_line(answer.stderr)
        raise CannotJudge(f"the package index did not list the releases of sglang ({reason}): check the network.")
    return versions.final(name.strip() for name in listed.group(1).split(","))


def download(release: str, directory: Path, way_out: str, tell: Callable[[str], None]) -> Path:
    """Download the wheel of a release, and nothing else, into an empty directory.

    Args:
        release: a valid version number.
        directory: where the wheel is put.
        way_out: what the user can do without the download, to end a sentence with.
        tell: told when the download begins.

    Raises:
        UsageError: a release that the index does not offer.
        CannotJudge: no network, or none allowed, no space, or any other failure of pip.
    """
    if _offline():
        raise CannotJudge(f"sglang {release} is not cached, and HARNESS_OFFLINE forbids a download: {way_out}.")
    tell(f"Downloading sglang {release}")
    # Only wheels: pip would run the build of a source distribution to learn its metadata.
    answer = _run_pip(
        "download", "--no-deps", "--only-binary=:all:", "--quiet", "-d", str(directory), f"sglang=={release}"
    )
    if answer.returncode != 0:
        raise _download_error(release, answer.stderr, way_out)
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotJudge(f"pip downloaded {len(wheels)} wheels for sglang {release} instead of one: run again.")
    return wheels[0]


def _download_error(release: str, stderr: str, way_out: str) -> HarnessError:
    if "No space left on device" in stderr:
        return CannotJudge(
            f"there is no space left for the download of sglang {release}: free some in the temporary "
            "directory, or set TMPDIR and HARNESS_CACHE to others."
        )
    if _NO_NETWORK.search(stderr):
        return CannotJudge(f"sglang {release} is not cached, and the package index cannot be reached: {way_out}.")
    if _NO_SUCH_RELEASE.search(stderr):
        listed = re.search(r"\(from versions: (.*?)\)", stderr)
        offered = versions.final(listed.group(1).split(", ")) if listed else []
        nearest = versions.nearest(Version(release), offered) if offered else "`pip index versions sglang` lists them"
        return UsageError(f"the package index has no sglang {release} for this Python and platform: {nearest}.")
    return CannotJudge(f"pip could not download sglang {release} ({_last_line(stderr)}): {way_out}.")


def _run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    # Two retries: without any, pip does not say that the connection failed; with its five, offline is slow.
    command = [
        sys.executable,
        "-m",
        "pip",
        *arguments,
        "--no-input",
        "--disable-pip-version-check",
        "--retries",
        "2",
    ]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)


def _offline() -> bool:
    return os.environ.get("HARNESS_OFFLINE", "") not in ("", "0")


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else "pip gave no reason"
