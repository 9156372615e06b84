"""The cache directory: what is downloaded or made once, and kept.

Environment: `HARNESS_CACHE` names it.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.errors import CannotJudge


def cache_dir() -> Path:
    """The cache directory: `HARNESS_CACHE`, else below `XDG_CACHE_HOME`, else below `~/.cache`."""
    named = os.environ.get("HARNESS_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    parent = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(parent).absolute() / "sglang-ascend-harness"


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
