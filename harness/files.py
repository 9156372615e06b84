"""Writing a file whole or not at all, under a name that any file system takes."""

import os
import re
import tempfile
from pathlib import Path

from harness.errors import CannotJudge


def safe_name(text: str, otherwise: str = "_") -> str:
    """`text` as a part of a file name, with `otherwise` in the place of what might mean something there."""
    return re.sub(r"[^A-Za-z0-9._-]+", otherwise, text).lstrip(".") or "_"


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Write `data` to a temporary name beside `path`, then rename it.

    Where it is `durable` it is on disk afterwards, and outlives the machine; else it outlives this process only, at a
    fraction of the time. Raises CannotJudge, naming the file and the cause, when the disk is full or the place cannot
    be written to; what was at `path` before stays as it was.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
        if durable:
            _sync(path.parent)
    except OSError as error:
        raise CannotJudge(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)


def _sync(folder: Path) -> None:
    """Have the names in `folder` on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
