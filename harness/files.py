"""Writing a file whole or not at all."""

import os
import tempfile
from pathlib import Path

from harness.errors import CannotJudge


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary name beside `path`, then rename it.

    Raises CannotJudge, naming the file and the cause, when the disk is full or the place cannot be written to;
    what was at `path` before stays as it was.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CannotJudge(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
