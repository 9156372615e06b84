"""The tests in `tests/device/`, each file in a process of its own: installing the device changes a process for good.

One file alone: `python -m pytest tests/device/memory.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_FILES = sorted((_ROOT / "tests" / "device").glob("*.py"))


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_on_the_emulated_device(file: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=300)

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def test_there_is_a_file_for_each_part_of_the_device() -> None:
    assert {"memory", "streams", "graphs", "synchronisation", "launches", "collectives"} <= {
        file.stem for file in _FILES
    }
