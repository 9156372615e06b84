"""The cache of unpacked sglang releases.

A release is downloaded as a wheel by pip, checked, unpacked and never installed. The cache holds
`releases/<release>/sglang` and `releases/<release>/sglang-<release>.dist-info`; a directory under
`releases/` whose name does not start with a dot is whole, because it got its name by one rename.

Environment: `HARNESS_CACHE` names the cache directory, `HARNESS_OFFLINE=1` forbids the network. The
package index is the one pip is configured for.

`python -m harness.subject.wheels pin FILE...` writes the hashes of known-good wheels.
"""

import base64
import csv
import errno
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from packaging.version import InvalidVersion, Version

from harness.errors import CannotJudge, Exit, HarnessError, UsageError
from harness.files import write_atomically

FIRST_RELEASE = "0.5.15"
"""The oldest release a range starts from when the user names none."""

PINNED_HASHES = Path(__file__).with_name("wheel_hashes.json")
"""sha256 of wheel files by file name, written by `pin`."""

# Compiled extensions are a third of a wheel. sglang loads them on demand only (`load_rust_extension`), falls
# back to Python where one is absent, and none is on the way to the Ascend backend.
_NOT_UNPACKED = frozenset({".so"})

# RECORD cannot list its own hash, nor that of a signature made over it.
_UNRECORDED = ("RECORD", "RECORD.jws", "RECORD.p7s")

# What a damaged archive raises, depending on which of its bytes is wrong.
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    RuntimeError,
    ValueError,
    OSError,
    csv.Error,
)

# What pip prints when the index did not answer. It goes on to print "No matching distribution found" too, so
# these are looked for first. "from versions: none" is that case with pip's retries turned off.
_NO_NETWORK = re.compile(
    r"Failed to establish a new connection|Max retries|NameResolutionError|ProxyError|SSLError|Timeout"
    r"|timed out|Connection (?:refused|reset|aborted|broken)|connection broken|Network is unreachable"
    r"|ProtocolError|IncompleteRead|HTTP error \d|\d Server Error|from versions: none",
    re.IGNORECASE,
)
_NO_SUCH_RELEASE = re.compile(r"No matching distribution found|Could not find a version", re.IGNORECASE)


def cache_dir() -> Path:
    """The cache directory: `HARNESS_CACHE`, else below `XDG_CACHE_HOME`, else below `~/.cache`."""
    named = os.environ.get("HARNESS_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent).absolute() / "sglang-ascend-harness"


def cached_releases() -> list[str]:
    """The releases that can be used without the network, oldest first."""
    releases = cache_dir() / "releases"
    if not releases.is_dir():
        return []
    names = [entry.name for entry in releases.iterdir() if not entry.name.startswith(".")]
    return _ascending(name for name in names if _is_whole(releases / name))


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
    return _final(name.strip() for name in listed.group(1).split(","))


def releases_between(first: str | None, last: str | None, warning: Callable[[str], None] | None = None) -> list[str]:
    """The final and post releases from `first` to `last`, both included, oldest first.

    Args:
        first: an existing release; None stands for `FIRST_RELEASE`.
        last: an existing release; None stands for the newest.
        warning: told one sentence if the index cannot be reached, so that only the cache was looked at.

    Raises:
        UsageError: an end that does not exist, or a range that holds no release.
        CannotJudge: without the index, an end that is not cached, or an empty cache.
    """
    known = cached_releases()
    unreachable = ""
    try:
        known += available_releases()
    except CannotJudge as error:
        unreachable = str(error)
        if warning is not None:
            warning(f"only cached releases are considered, as {unreachable}")
    known = _final(known)
    if not known:
        raise CannotJudge(f"no release of sglang is cached, and {unreachable or 'the package index has none.'}")
    ends = [_version(end) for end in (first, last) if end is not None]
    for end in ends:
        if end not in map(Version, known):
            if unreachable:
                raise CannotJudge(
                    f"sglang {end} is not among the cached releases ({', '.join(known)}), and {unreachable}"
                )
            raise UsageError(f"there is no release {end} of sglang: {_nearest(end, known)}.")
    lowest = _version(first or FIRST_RELEASE)
    highest = _version(last or known[-1])
    chosen = [name for name in known if lowest <= Version(name) <= highest]
    if not chosen:
        raise UsageError(
            f"no release of sglang lies between {lowest} and {highest}: "
            f"name the older end first, from {known[0]} to {known[-1]}."
        )
    return chosen


def fetch(release: str, progress: Callable[[str], None] | None = None) -> Path:
    """Return the directory that holds `sglang/` of a release, downloading it if it is not cached.

    The wheel must have its pinned hash where `PINNED_HASHES` lists it, and each file in it the hash that the
    wheel's own RECORD gives. Processes may fetch the same release at once. Whatever happens, the cache holds
    the release whole or not at all.

    Args:
        release: a version such as "0.5.18".
        progress: told what is being done, one sentence at a time.

    Raises:
        UsageError: no version number, or a release that the index does not offer.
        CannotJudge: no network, no space, or a wheel that is damaged or fails a hash.
    """
    name = str(_version(release))
    target = cache_dir() / "releases" / name
    if target.exists():
        if not _is_whole(target):
            raise CannotJudge(f"{target} is a damaged copy of sglang {name}: delete it and run again.")
        return target
    tell = progress or (lambda message: None)
    with new_directory(target) as tree, tempfile.TemporaryDirectory(dir=tree.parent) as download:
        tell(f"Downloading sglang {name}")
        wheel = _download(name, Path(download))
        tell(f"Checking and unpacking sglang {name}")
        _check_pinned_hash(wheel, name)
        _unpack(wheel, name, tree)
    return target


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """Give an empty directory to fill, which becomes `target` at the end of the `with` block.

    It takes its name by one rename, and is removed if the block raises anything. If another process has made
    `target` in the meantime, that one stays and this one is dropped.

    Raises:
        CannotJudge: the disk is full, or the cache cannot be written.
    """
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        workplace = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            # One level down: mkdtemp's own directory is closed to other users, and a cache may be shared.
            tree = workplace / "tree"
            tree.mkdir()
            yield tree
            try:
                tree.rename(target)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"there is no space left in {target.parent}: free some"
        else:
            problem = f"{target.parent} cannot be written ({error.strerror or error}): give write access to it"
        raise CannotJudge(f"{problem}, or set HARNESS_CACHE to another directory.") from error


def pin(wheels: Sequence[Path]) -> None:
    """Add the sha256 of each wheel file to `PINNED_HASHES`.

    Raises:
        UsageError: a file that cannot be read, or one that is pinned with another hash already.
    """
    pinned = _pinned_hashes()
    for wheel in wheels:
        try:
            digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"{wheel} cannot be pinned because it cannot be read ({error.strerror}).") from error
        if pinned.setdefault(wheel.name, digest) != digest:
            raise UsageError(
                f"{wheel} has the hash {digest}, but is pinned as {pinned[wheel.name]}: "
                f"remove its line from {PINNED_HASHES.name} first if that was wrong."
            )
    write_atomically(PINNED_HASHES, (json.dumps(pinned, indent=2, sort_keys=True) + "\n").encode())


def _download(release: str, directory: Path) -> Path:
    if _offline():
        raise CannotJudge(f"sglang {release} is not cached, and HARNESS_OFFLINE forbids a download: {_use_cached()}.")
    # Only wheels: pip would run the build of a source distribution to learn its metadata.
    answer = _run_pip(
        "download", "--no-deps", "--only-binary=:all:", "--quiet", "-d", str(directory), f"sglang=={release}"
    )
    if answer.returncode != 0:
        raise _download_error(release, answer.stderr)
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise CannotJudge(f"pip downloaded {len(wheels)} wheels for sglang {release} instead of one: run again.")
    return wheels[0]


def _download_error(release: str, stderr: str) -> HarnessError:
    if "No space left on device" in stderr:
        return CannotJudge(
            f"there is no space left for the download of sglang {release}: free some in the temporary "
            "directory, or set TMPDIR and HARNESS_CACHE to others."
        )
    if _NO_NETWORK.search(stderr):
        return CannotJudge(f"sglang {release} is not cached, and the package index cannot be reached: {_use_cached()}.")
    if _NO_SUCH_RELEASE.search(stderr):
        listed = re.search(r"\(from versions: (.*?)\)", stderr)
        offered = _final(listed.group(1).split(", ")) if listed else []
        way_out = _nearest(Version(release), offered) if offered else "`pip index versions sglang` lists them"
        return UsageError(f"the package index has no sglang {release} for this Python and platform: {way_out}.")
    return CannotJudge(f"pip could not download sglang {release} ({_last_line(stderr)}): {_use_cached()}.")


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


def _check_pinned_hash(wheel: Path, release: str) -> None:
    expected = _pinned_hashes().get(wheel.name)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if expected is not None and found != expected:
        raise _failed_hash(release, wheel.name, expected, found)


def _pinned_hashes() -> dict[str, str]:
    if not PINNED_HASHES.exists():
        return {}
    pinned: dict[str, str] = json.loads(PINNED_HASHES.read_text(encoding="utf-8"))
    return pinned


def _unpack(wheel: Path, release: str, tree: Path) -> None:
    """Check every file of a wheel, and write those that are needed below `tree`."""
    info = f"sglang-{release}.dist-info"
    try:
        archive = zipfile.ZipFile(wheel)
    except _DAMAGE as error:
        raise _damaged(release, str(error)) from error
    with archive:
        names = [member.filename for member in archive.infolist() if not member.is_dir()]
        for name in names:
            _refuse_outside(name, release)
        recorded = _recorded_hashes(_read(archive, f"{info}/RECORD", release), release)
        if len(set(names)) != len(names) or set(recorded) - set(names):
            raise _damaged(release, "its files are not those that its RECORD lists")
        for name in names:
            content = _read(archive, name, release)
            if name not in [f"{info}/{unrecorded}" for unrecorded in _UNRECORDED]:
                found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                if found != recorded.get(name):
                    raise _failed_hash(release, name, recorded.get(name, "in its RECORD"), found)
            path = PurePosixPath(name)
            if path.parts[0] in ("sglang", info) and path.suffix not in _NOT_UNPACKED:
                destination = tree / path
                destination.parent.mkdir(parents=True, exist_ok=True)
                destination.write_bytes(content)
    if not _is_whole(tree):
        raise _damaged(release, "it holds no sglang")


def _read(archive: zipfile.ZipFile, name: str, release: str) -> bytes:
    try:
        return archive.read(name)  # also compares the CRC
    except (*_DAMAGE, KeyError) as error:
        raise _damaged(release, f"{name}: {error}") from error


def _recorded_hashes(record: bytes, release: str) -> dict[str, str]:
    """The sha256 of each file, in the unpadded base64 that RECORD uses."""
    try:
        rows = list(csv.reader(record.decode("utf-8").splitlines()))
    except _DAMAGE as error:
        raise _damaged(release, f"its RECORD cannot be read: {error}") from error
    return {row[0]: row[1].removeprefix("sha256=") for row in rows if len(row) == 3 and row[1]}


def _refuse_outside(name: str, release: str) -> None:
    # Backslashes and colons are separators on Windows only, but no file of sglang has one.
    if not name or name.startswith("/") or ".." in name.split("/") or re.search(r"[\\:\0]", name):
        raise _damaged(release, f"it names a file outside itself, {name!r}")


def _damaged(release: str, problem: str) -> CannotJudge:
    return CannotJudge(f"the wheel of sglang {release} is damaged ({problem}); nothing of it was kept, so run again.")


def _failed_hash(release: str, name: str, expected: str, found: str) -> CannotJudge:
    return CannotJudge(
        f"the wheel of sglang {release} failed its hash: expected sha256 {expected} for {name}, but got {found}; "
        "nothing of it was kept, so run again, with `pip cache purge` first if it fails twice."
    )


def _is_whole(directory: Path) -> bool:
    """Whether nobody has deleted parts of a release: its first and its last file are there."""
    return (directory / "sglang" / "__init__.py").is_file() and any(directory.glob("sglang-*.dist-info/RECORD"))


def _use_cached() -> str:
    cached = cached_releases()
    return f"use a cached release ({', '.join(cached)})" if cached else "no release is cached, so name a checkout"


def _nearest(version: Version, known: Sequence[str]) -> str:
    place = bisect([Version(name) for name in known], version)
    return f"the nearest are {', '.join(known[max(0, place - 3) : place + 3])}"


def _final(names: Iterator[str] | Sequence[str]) -> list[str]:
    return [name for name in _ascending(names) if not Version(name).is_prerelease]


def _ascending(names: Iterator[str] | Sequence[str]) -> list[str]:
    """The valid versions among `names`, each once, oldest first."""
    versions = set()
    for name in names:
        try:
            versions.add(Version(name))
        except InvalidVersion:
            continue
    return [str(version) for version in sorted(versions)]


def _version(release: str) -> Version:
    try:
        return Version(release)
    except InvalidVersion as error:
        raise UsageError(f"{release!r} is no release of sglang: name one like {FIRST_RELEASE}.") from error


def _offline() -> bool:
    return os.environ.get("HARNESS_OFFLINE", "") not in ("", "0")


def _last_line(stderr: str) -> str:
    lines = stderr.strip().splitlines()
    return lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else "pip gave no reason"


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "pin":
        print("usage: python -m harness.subject.wheels pin FILE...", file=sys.stderr)
        return Exit.USAGE
    try:
        pin([Path(argument) for argument in arguments[1:]])
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return Exit.PASSED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
