"""Which sglang the user means: `installed`, a release, a directory, or `git:DIR@REV`.

Nothing here imports sglang, and nothing writes to a user's checkout. Versions come from the metadata of the
distribution, from git's tags, or from the text of the version files that the build of sglang writes.
"""

import contextlib
import importlib.metadata
import importlib.util
import os
import re
import tarfile
from collections.abc import Callable
from email.parser import HeaderParser
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from harness.cache import cache_dir, new_directory
from harness.errors import CannotJudge, NothingToTest, UsageError
from harness.subject import wheels
from harness.subject.clone import Clone, git, reason

ASCEND_BACKEND = "sglang/srt/hardware_backend/npu/attention/ascend_backend.py"
"""The file without which an sglang has nothing for this harness to test."""

UNKNOWN = "unknown"
"""The release of an sglang that does not tell it."""

_FORMS = "name `installed`, a release like 0.5.18, a directory, or `git:DIR@REV`"

# At the start of a line only: indented assignments are fallbacks for when the version is not known.
_ASSIGNED_VERSION = re.compile(r"""^__version__\s*=\s*(?:version\s*=\s*)?["']([^"']+)["']""", re.MULTILINE)


class Source(msgspec.Struct, frozen=True):
    """An sglang that can be put in front of sys.path of a subject.

    Without a spec from the user, `spec` is one that names the same sglang.
    """

    spec: str  #: what the user typed
    kind: str  #: "installed", "release", "directory" or "git"
    path: str  #: directory that holds `sglang/`
    release: str  #: version, e.g. "0.5.18"; "0.5.18+3.gabc1234" three commits later; or `UNKNOWN`
    revision: str = ""  #: full commit hash, for git and for a directory inside a git checkout


def resolve(spec: str | None, progress: Callable[[str], None] | None = None) -> Source:
    """Find the sglang that `spec` names, and make sure that it has the Ascend backend.

    Args:
        spec: what the user typed; None stands for the installed sglang, else the newest cached release. A word
            that is both a release and a directory means the release; `./0.5.18` means the directory.
        progress: told what is being done when a release is downloaded or a revision is unpacked.

    Raises:
        UsageError: a spec that names nothing; `NothingToTest` where it is no sglang, or one without the Ascend backend.
        CannotJudge: no spec and no sglang here, or one that cannot be brought into the cache.
    """
    if spec is None:
        spec = _default()
    if spec == "installed":
        return _installed(spec)
    if spec.startswith("git:"):
        return _revision(spec, progress)
    if os.sep in spec or spec.startswith((".", "~")):
        return _directory(spec)
    if is_release(spec):
        path = wheels.fetch(spec, progress)
        _require_ascend_backend(path, f"sglang {path.name}")
        return Source(spec=spec, kind="release", path=str(path), release=path.name)
    if spec and Path(spec).is_dir():
        return _directory(spec)
    raise UsageError(f"{spec!r} names no sglang: {_FORMS}.")


def _default() -> str:
    if _installed_path() is not None:
        return "installed"
    cached = wheels.cached_releases()
    if not cached:
        raise CannotJudge(f"no sglang is installed and no release of it is cached: {_FORMS}.")
    return cached[-1]


def _installed(spec: str) -> Source:
    path = _installed_path()
    if path is None:
        raise UsageError("no sglang is installed for this Python: install it, or name a release like 0.5.18.")
    _require_ascend_backend(path, f"the installed sglang, {path},")
    revision = _revision_of(path)
    release = _release_of(path, revision)
    if release == UNKNOWN:
        # An editable install keeps its metadata elsewhere than beside the package.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            release = importlib.metadata.version("sglang")
    return Source(spec=spec, kind="installed", path=str(path), release=release, revision=revision)


def _installed_path() -> Path | None:
    """The directory that `import sglang` would take it from, found without importing it."""
    found = importlib.util.find_spec("sglang")
    # A mere directory named sglang, such as a checkout in the working directory, has no origin.
    if found is None or found.origin is None:
        return None
    return Path(found.origin).resolve().parent.parent


def _directory(spec: str) -> Source:
    directory = Path(spec).expanduser().resolve()
    if not directory.is_dir():
        raise UsageError(f"{spec} is no directory: {_FORMS}.")
    path = directory / "python"
    if not (path / "sglang" / "__init__.py").is_file():
        path = directory
    _require_ascend_backend(path, str(path))
    revision = _revision_of(path)
    return Source(spec=spec, kind="directory", path=str(path), release=_release_of(path, revision), revision=revision)


def _revision(spec: str, progress: Callable[[str], None] | None) -> Source:
    directory, name = split_git_spec(spec)
    clone = Clone(directory)
    root, commit = clone.root, clone.commit(name)
    target = cache_dir() / "revisions" / commit
    if not target.exists():
        if progress is not None:
            progress(f"Unpacking sglang at {commit[:12]}")
        _unpack_revision(root, commit, target, spec)
    _require_ascend_backend(target, str(target))
    release = _described(root, commit) or _written_version(target) or UNKNOWN
    return Source(spec=spec, kind="git", path=str(target), release=release, revision=commit)


def split_git_spec(spec: str) -> tuple[Path, str]:
    """The directory and the revision of `git:DIR@REV`. Both may hold an `@`: DIR is the longest part that exists.

    Raises UsageError where no part is a directory.
    """
    parts = spec.removeprefix("git:").split("@")
    for count in range(len(parts) - 1, 0, -1):
        directory, name = "@".join(parts[:count]), "@".join(parts[count:])
        if directory and name and Path(directory).expanduser().is_dir():
            return Path(directory).expanduser().resolve(), name
    raise UsageError(f"{spec!r} names no revision in a directory that exists: write `git:DIR@REV`.")


def _unpack_revision(root: Path, commit: str, target: Path, spec: str) -> None:
    """Unpack the package from the repository into the cache; the checkout is not looked at."""
    # A commit of the repository has `python/sglang`, one of a repository made from a release `sglang`.
    trees = {f"{commit}:python": f"{commit}:python/sglang", commit: f"{commit}:sglang"}
    holding = [tree for tree, package in trees.items() if git(root, "cat-file", "-e", package).returncode == 0]
    if not holding:
        raise NothingToTest(f"{spec} is no sglang: the revision has neither python/sglang nor sglang.")
    with new_directory(target) as directory:
        archive = directory.parent / "archive.tar"
        packed = git(root, "archive", "--format=tar", f"--output={archive}", holding[0], "sglang")
        if packed.returncode != 0:
            raise CannotJudge(f"git could not write {spec} to {target.parent} ({reason(packed)}): run again.")
        with tarfile.open(archive) as members:
            members.extractall(directory, filter=_inside)
        _require_ascend_backend(directory, spec)


def _inside(member: tarfile.TarInfo, directory: str) -> tarfile.TarInfo | None:
    """A filter that leaves out links that lead out of the package, such as one to the top of the repository."""
    try:
        return tarfile.data_filter(member, directory)
    except tarfile.FilterError:
        return None


def _require_ascend_backend(path: Path, name: str) -> None:
    if not (path / "sglang" / "__init__.py").is_file():
        raise NothingToTest(f"{name} is no sglang: sglang/__init__.py is missing in it.")
    if not (path / ASCEND_BACKEND).is_file():
        raise NothingToTest(f"{name} is an sglang that has no Ascend backend: {ASCEND_BACKEND} is missing in it.")


def _release_of(path: Path, revision: str) -> str:
    for metadata in path.glob("sglang-*.dist-info/METADATA"):
        version = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))["Version"]
        if version:
            return version
    # Before the version file: a checkout keeps that of the day it was installed.
    return (_described(path, revision) if revision else "") or _written_version(path) or UNKNOWN


def _described(repository: Path, commit: str) -> str:
    """The version that git's tags give a commit, as a valid version number; empty without tags."""
    answer = git(repository, "describe", "--tags", "--long", "--match", "v[0-9]*", commit)
    if answer.returncode != 0:
        return ""
    tag, distance, abbreviation = answer.stdout.strip().rsplit("-", 2)
    if not is_release(tag):
        return ""
    return str(Version(tag)) if distance == "0" else f"{Version(tag)}+{distance}.{abbreviation}"


def _written_version(path: Path) -> str:
    for name in ("_version.py", "version.py"):
        file = path / "sglang" / name
        if file.is_file():
            assigned = _ASSIGNED_VERSION.search(file.read_text(encoding="utf-8", errors="replace"))
            if assigned and is_release(assigned.group(1)):
                return assigned.group(1)
    return ""


def _revision_of(path: Path) -> str:
    """The commit checked out around `path`; empty if sglang is not a tracked part of that checkout."""
    # An environment's site-packages often lies, ignored, in the checkout of something else.
    if git(path, "ls-files", "--error-unmatch", "sglang/__init__.py").returncode != 0:
        return ""
    return git(path, "rev-parse", "HEAD").stdout.strip()


def is_release(word: str) -> bool:
    """Whether `word` is a version number, of a release that may or may not exist."""
    try:
        Version(word)
    except InvalidVersion:
        return False
    return True
