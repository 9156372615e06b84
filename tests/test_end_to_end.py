"""The whole way on real wheels: command line, process, driver, real sglang, checks, report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.scenario import SessionScenario
from harness.scenario.case import SCHEMA, Case, write_case
from harness.scenario.session import Visit

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


#: The second request comes while the first one is being answered.
SESSION = SessionScenario("DFLASH", (Visit(5, 24), Visit(130, 12, text=1, arrives=2)))


def played(scenario: SessionScenario, release: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Replay a session on one release."""
    write_case(folder / "session.json", Case(SCHEMA, scenario))
    return harness("replay", "session.json", "--sglang", release, folder=folder)


@pytest.mark.slow
def test_a_session_in_eager_shows_that_0_5_18_reads_what_nobody_has_written_and_is_not_lossless(tmp_path: Path) -> None:
    shown = played(SESSION, "0.5.18", tmp_path)

    assert shown.returncode == 1, shown.stderr
    assert "[session-kv-lengths:kv_lengths-draft_block:DFLASH:eager:session:block-added-again]" in shown.stdout
    assert "[session-kv-access:draft_block:DFLASH:eager:session:never-written]" in shown.stdout
    assert "[session-lossless:tokens:DFLASH:eager:session:differ]" in shown.stdout


@pytest.mark.slow
def test_a_session_with_graphs_ends_0_5_18_at_its_first_verify(tmp_path: Path) -> None:
    shown = played(replace(SESSION, executor="graph"), "0.5.18", tmp_path)

    assert shown.returncode == 1, shown.stderr
    assert "0.5.18: the server ends at turn 2: " in shown.stdout
    assert "[session-runs:end:DFLASH:graph:session:" in shown.stdout


@pytest.mark.slow
def test_a_session_does_not_start_on_0_5_16_which_refuses_the_device(tmp_path: Path) -> None:
    shown = played(SESSION, "0.5.16", tmp_path)

    assert shown.returncode == 1, shown.stderr
    assert "0.5.16: the server does not start: " in shown.stdout
    assert "only supports CUDA device" in shown.stdout


@pytest.mark.slow
def test_with_its_gate_lifted_0_5_16_shows_the_double_count(tmp_path: Path) -> None:
    shown = played(replace(SESSION, gate_lifted=True), "0.5.16", tmp_path)

    assert shown.returncode == 1, shown.stderr
    assert "block-added-again:gate-lifted]" in shown.stdout


@pytest.mark.slow
def test_a_session_is_right_in_0_5_23(tmp_path: Path) -> None:
    shown = played(SESSION, "0.5.23", tmp_path)

    assert shown.returncode == 0, shown.stdout + shown.stderr
