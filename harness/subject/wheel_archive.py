"""The wheel file of a release: checked, unpacked and never installed.

`python -m harness.subject.wheel_archive pin FILE...` writes the hashes of known-good wheels.
"""

import base64
import csv
import hashlib
import json
import lzma
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from harness.errors import CannotJudge, Exit, HarnessError, UsageError
from harness.files import write_atomically

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


def unpack(wheel: Path, release: str, tree: Path) -> None:
    """Check a wheel and every file of it, and write those that are needed below `tree`, an empty directory.

    The wheel must have its pinned hash where `PINNED_HASHES` lists it, and each file in it the hash that the
    wheel's own RECORD gives.

    Raises:
        CannotJudge: a wheel that is damaged or fails a hash; some of its files may be written by then.
    """
    _check_pinned_hash(wheel, release)
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
    if not is_whole(tree):
        raise _damaged(release, "it holds no sglang")


def is_whole(directory: Path) -> bool:
    """Whether nobody has deleted parts of an unpacked wheel: its first and its last file are there."""
    return (directory / "sglang" / "__init__.py").is_file() and any(directory.glob("sglang-*.dist-info/RECORD"))


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


def _main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2 or arguments[0] != "pin":
        print("usage: python -m harness.subject.wheel_archive pin FILE...", file=sys.stderr)
        return Exit.USAGE
    try:
        pin([Path(argument) for argument in arguments[1:]])
    except HarnessError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return Exit.PASSED


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
