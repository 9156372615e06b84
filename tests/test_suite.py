"""The suite in `cases/` as a whole: what it says of itself, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def suite(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Collect the suite as a user would, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "cases", "--collect-only", "-q", *arguments],
        cwd=ROOT,
        env={**os.environ, "HARNESS_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [("-m", "npu"), ("--device", "npu"), ("-m", "npu and nightly")], ids=" ".join)
def test_an_npu_that_is_asked_for_and_not_there_is_an_error_and_no_skip(arguments: tuple[str, ...]) -> None:
    refused = suite(*arguments)

    assert refused.returncode == 4
    assert refused.stderr == (
        "ERROR: an NPU was asked for, and none can be used here: `harness doctor` says what is missing.\n\n"
    )


def test_a_device_that_has_no_subject_yet_is_an_error() -> None:
    refused = suite("--device", "cuda")

    assert refused.returncode == 4
    assert "`harness record --subject cuda` records a GPU" in refused.stderr


def test_not_asking_for_an_npu_selects_the_emulated_cases() -> None:
    selected = suite("-m", "emulated and not npu")

    assert selected.returncode == 0
    assert "cases/metadata/test_cells.py::test_metadata_of_drawn_batches_is_right[DFLASH target_verify eager mha]" in (
        selected.stdout
    )


def test_selecting_nightly_cases_is_enough_to_have_them() -> None:
    case = "cases/acceptance/test_acceptance.py::test_as_much_of_the_draft_is_accepted_as_on_cuda"

    assert case in suite("-m", "emulated and nightly").stdout
    assert case not in suite("-m", "emulated and not nightly").stdout


def test_the_header_names_what_is_tested_and_on_what() -> None:
    header = next(line for line in suite("-v").stdout.splitlines() if line.startswith("harness: "))

    for name in ("device emulated", "torch ", "torch_npu ", "CANN ", "sglang ", "profile pr", "seed fixed"):
        assert name in header


def test_what_the_checks_did_is_told_by_parallel_runs_too() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "cases/guard", "--sglang", "0.5.23", "-v", "-n", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stdout
    (gate,) = [line for line in ran.stdout.splitlines() if line.startswith("device-gate: ")]
    assert gate == f"device-gate: ran {ran.stdout.count('PASSED')}, failed 0, unknown 0"


def test_a_marker_that_nobody_has_declared_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("import pytest\n\n\n@pytest.mark.nup\ndef test_one() -> None:\n    pass\n")
    refused = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", ROOT / "tox.ini", "--rootdir", ROOT, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )

    assert refused.returncode != 0
    assert "'nup' not found in `markers`" in refused.stdout
