"""The cache of unpacked sglang releases.

A release is downloaded as a wheel by pip, checked, unpacked and never installed. The cache holds
`releases/<release>/sglang` and `releases/<release>/sglang-<release>.dist-info`; a directory under
`releases/` whose name does not start with a dot is whole, because it got its name by one rename.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from packaging.version import Version

from harness.cache import cache_dir, new_directory
from harness.errors import CannotJudge, UsageError
from harness.subject import package_index, versions, wheel_archive


def cached_releases() -> list[str]:
    """The releases that can be used without the network, oldest first."""
    releases = cache_dir() / "releases"
    if not releases.is_dir():
        return []
    names = [entry.name for entry in releases.iterdir() if not entry.name.startswith(".")]
    return versions.ascending(name for name in names if wheel_archive.is_whole(releases / name))


def releases_between(first: str | None, last: str | None, warning: Callable[[str], None] | None = None) -> list[str]:
    """The final and post releases from `first` to `last`, both included, oldest first.

    Args:
        first: an existing release; None stands for `versions.FIRST_RELEASE`.
        last: an existing release; None stands for the newest.
        warning: told one sentence if the index cannot be reached, so that only the cache was looked at.

    Raises:
        UsageError: an end that does not exist, or a range that holds no release.
        CannotJudge: without the index, an end that is not cached, or an empty cache.
    """
    known = cached_releases()
    unreachable = ""
    try:
        known += package_index.available_releases()
    except CannotJudge as error:
        unreachable = str(error)
        if warning is not None:
            warning(f"only cached releases are considered, as {unreachable}")
    known = versions.final(known)
    if not known:
        raise CannotJudge(f"no release of sglang is cached, and {unreachable or 'the package index has none.'}")
    ends = [versions.parse(end) for end in (first, last) if end is not None]
    for end in ends:
        if end not in map(Version, known):
            if unreachable:
                raise CannotJudge(
                    f"sglang {end} is not among the cached releases ({', '.join(known)}), and {unreachable}"
                )
            raise UsageError(f"there is no release {end} of sglang: {versions.nearest(end, known)}.")
    lowest = versions.parse(first or versions.FIRST_RELEASE)
    highest = versions.parse(last or known[-1])
    chosen = [name for name in known if lowest <= Version(name) <= highest]
    if not chosen:
        raise UsageError(
            f"no release of sglang lies between {lowest} and {highest}: "
            f"name the older end first, from {known[0]} to {known[-1]}."
        )
    return chosen


def fetch(release: str, progress: Callable[[str], None] | None = None) -> Path:
    """Return the directory that holds `sglang/` of a release, downloading it if it is not cached.

    Processes may fetch the same release at once. Whatever happens, the cache holds the release whole or not at all.

    Args:
        release: a version such as "0.5.18".
        progress: told what is being done, one sentence at a time.

    Raises:
        UsageError: no version number, or a release that the index does not offer.
        CannotJudge: no network, no space, or a wheel that is damaged or fails a hash.
    """
    name = str(versions.parse(release))
    target = cache_dir() / "releases" / name
    if target.exists():
        if not wheel_archive.is_whole(target):
            raise CannotJudge(f"{target} is a damaged copy of sglang {name}: delete it and run again.")
        return target
    tell = progress or (lambda message: None)
    with new_directory(target) as tree, tempfile.TemporaryDirectory(dir=tree.parent) as download:
        wheel = package_index.download(name, Path(download), way_out=_use_cached(), tell=tell)
        tell(f"Checking and unpacking sglang {name}")
        wheel_archive.unpack(wheel, name, tree)
    return target


def _use_cached() -> str:
    cached = cached_releases()
    return f"use a cached release ({', '.join(cached)})" if cached else "no release is cached, so name a checkout"
