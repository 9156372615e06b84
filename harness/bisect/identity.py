"""What an answer depends on, as digests: the harness, an sglang, and the surroundings of its process.

An answer that is kept is found by these again, so whatever can change it must be in one of them.
"""

import os
import platform
from functools import cache
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path

import harness
from harness.subject.source import Source

PACKAGE = Path(harness.__file__).parent
#: Data that is read from beside the package: the noise floor and the trained models.
FIXTURES = PACKAGE.parent / "fixtures"
#: Environment variables that sglang, torch_npu or the harness read; those of `IRRELEVANT` change no answer.
PREFIXES = ("SGLANG_", "ASCEND_", "HARNESS_", "TORCH", "OMP_", "PYTHONHASHSEED")
IRRELEVANT = ("HARNESS_CACHE", "HARNESS_OFFLINE", "HARNESS_SGLANG", "HARNESS_EXAMPLES")


@cache
def harness_digest() -> str:
    """Of every source and data file of the harness: their names and contents."""
    digest = sha256()
    for folder in (PACKAGE, FIXTURES):
        for file in _files(folder):
            digest.update(f"{file.relative_to(folder.parent)}\0{sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def sglang_digest(source: Source) -> str:
    """Of an sglang: its name, and of every file of it the name, the size and the time of its last change.

    Thousands of files are told from changed ones in a tenth of a second, as `make` and `git status` do it.
    """
    digest = sha256(f"{source.release}\0{source.revision}\n".encode())
    for file in _files(Path(source.path, "sglang")):
        found = file.stat()
        digest.update(f"{file}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def surroundings_digest() -> str:
    """Of Python, of every installed distribution with its version, and of the environment variables that are read."""
    installed = sorted({f"{one.metadata['Name']} {one.version}" for one in distributions()})
    read = sorted(
        f"{name}={value}" for name, value in os.environ.items() if name.startswith(PREFIXES) and name not in IRRELEVANT
    )
    return sha256("\n".join([platform.python_version(), platform.machine(), *installed, *read]).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    """Every file below `folder`, but for what Python compiles there."""
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        found += [Path(parent, name) for name in sorted(names) if not name.endswith(".pyc")]
    return [file for file in found if file.is_file()]
