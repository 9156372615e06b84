"""The whole way on real wheels: command line, process, driver, real sglang, checks, report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parent.parent / "cases" / "regressions"
CONTRACT = CASES / "double-count-of-the-contract.json"
GATE = CASES / "device-gate-DFLASH-supported-refused.json"


def harness(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` in `folder`, as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *map(str, arguments)], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_the_double_count_shows_in_0_5_18_beside_0_5_17_where_it_does_not(tmp_path: Path) -> None:
    shown = harness("replay", CONTRACT, "--sglang", "0.5.17", "--sglang", "0.5.18", folder=tmp_path)

    assert shown.returncode == 1, shown.stderr
    assert "[21, 146]" in shown.stdout
    assert "[37, 162]" in shown.stdout
    assert "0.5.18: seq_lens_cpu_int[0]=37, but should be 21" in shown.stdout


@pytest.mark.slow
def test_a_case_that_is_right_ends_with_status_0(tmp_path: Path) -> None:
    shown = harness("replay", CONTRACT, "--sglang", "0.5.17", folder=tmp_path)

    assert shown.returncode == 0, shown.stdout + shown.stderr


@pytest.mark.slow
def test_check_finds_shrinks_and_writes_what_replay_reproduces_in_a_new_process(tmp_path: Path) -> None:
    checked = harness(
        "check", "--sglang", "0.5.18", "--group", "metadata", "--fresh", "--json", "out.json", folder=tmp_path
    )
    document = json.loads((tmp_path / "out.json").read_text())
    fingerprint = "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again"
    (finding,) = (one for one in document["findings"] if one["fingerprint"] == fingerprint)
    replayed = harness(*finding["replay"].split()[1:], folder=tmp_path)

    assert checked.returncode == document["status"] == 1
    assert finding["scenario"]["rounds"] == [[{"prefix": 0, "row": 1, "new_tokens": 0, "host_lag": 0}]]
    assert replayed.returncode == 1
    assert finding["message"] in replayed.stdout


@pytest.mark.slow
def test_0_5_17_is_right_where_0_5_18_is_wrong_and_its_gate_is_right_altogether(tmp_path: Path) -> None:
    checked = harness("check", "--sglang", "0.5.17", "--group", "guard", "--junit", "junit.xml", folder=tmp_path)

    assert checked.returncode == 0, checked.stdout
    assert 'failures="0"' in (tmp_path / "junit.xml").read_text()
