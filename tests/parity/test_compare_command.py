"""`harness record`, `verify` and `compare` as a user types them: what they say, and the status they end with."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from harness.commands import compare as commands
from harness.errors import Exit, UsageError
from harness.parity.document import ComparisonDocument
from harness.parity.recording import OBSERVATIONS
from harness.parity.sides import DEVICES
from tests.parity.sides import IdealSide
from tests.parity.test_comparison import LIMIT, off_by
from tests.parity.test_recording import recorded

KEPT = Path(__file__).parents[2] / "fixtures" / "recordings" / "triton-0.5.23"


def compare(a: object, b: object, json_file: Path | None = None) -> Exit:
    return commands.compare((str(a), str(b)), "dev", 0, [], (None, None), json_file)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three recordings: a right one, one within noise, one that is wrong."""
    folder = tmp_path_factory.mktemp("runs")
    recorded(folder / "right", IdealSide())
    recorded(folder / "noisy", IdealSide(off_by(LIMIT / 2)))
    recorded(folder / "wrong", IdealSide(off_by(1.0)))
    return folder


def test_each_verdict_has_its_status(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare(runs / "right", runs / "right") == Exit.PASSED
    assert capsys.readouterr().out.startswith("EQUAL: ")
    assert compare(runs / "right", runs / "noisy") == Exit.PASSED
    assert capsys.readouterr().out.startswith("WITHIN NOISE: 1 WITHIN NOISE, ")
    assert compare(runs / "right", runs / "wrong") == Exit.FINDINGS
    said = capsys.readouterr().out
    assert said.startswith("DIFFERENT: 1 DIFFERENT, ")
    assert "first divergence: scenario " in said


def test_the_document_can_be_read_again(runs: Path, tmp_path: Path) -> None:
    compare(runs / "right", runs / "wrong", tmp_path / "compared.json")
    document = msgspec.json.decode((tmp_path / "compared.json").read_bytes(), type=ComparisonDocument)

    assert document.verdict == "DIFFERENT"
    assert document.first is not None
    assert document.errors is not None
    assert document.errors[1].largest == pytest.approx(1.0, rel=1e-3)
    assert json.loads((tmp_path / "compared.json").read_text())["kind"] == "comparison"


def test_verify_says_what_was_recorded(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.verify(runs / "right") == Exit.PASSED
    assert "is whole: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("verify", "nowhere"), "nowhere is no whole recording: manifest.json cannot be read"),
        (
            ("compare", "nowhere", "ascend@0.5.18"),
            "'nowhere' is no side: name a recording's directory, or",
        ),
        (("compare", "gpu@0.5.18", "ascend@0.5.18"), "there is no subject 'gpu': the subjects are"),
        (("compare", ".", "ascend@0.5.18"), ". is no whole recording"),
        (("record", "--subject", "gpu", "--out", "run"), "there is no subject 'gpu'"),
        (("record", "--profile", "all", "--out", "run"), "there is no profile 'all'"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "harness", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_only_is_refused_where_a_recording_says_what_is_compared(runs: Path) -> None:
    with pytest.raises(UsageError, match="--only chooses what is drawn"):
        commands.compare((str(runs / "right"), str(runs / "right")), "dev", 0, ["mha"], (None, None), None)


def test_the_kept_recording_is_whole_and_is_not_called_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.verify(KEPT) == Exit.PASSED
    assert "40 scenarios of sglang 0.5.23, triton on triton-interpreter." in capsys.readouterr().out
    assert DEVICES["triton"] == "triton-interpreter"


def test_a_flipped_bit_in_the_kept_recording_is_refused(tmp_path: Path) -> None:
    shutil.copytree(KEPT, tmp_path / "run")
    path = tmp_path / "run" / OBSERVATIONS
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)

    with pytest.raises(UsageError, match=r"observations\.safetensors has not the size and the hash"):
        commands.verify(tmp_path / "run")


@pytest.mark.slow
def test_the_ascend_backend_is_within_noise_of_the_kept_recording() -> None:
    assert compare("ascend@0.5.22", KEPT) == Exit.PASSED


@pytest.mark.slow
def test_dspark_in_graphs_is_all_that_differs_from_it_in_0_5_23(tmp_path: Path) -> None:
    assert compare("ascend@0.5.23", KEPT, tmp_path / "compared.json") == Exit.FINDINGS
    document = msgspec.json.decode((tmp_path / "compared.json").read_bytes(), type=ComparisonDocument)

    different = {one.path for one in document.scenarios if one.verdict == "DIFFERENT"}
    assert different == {"DSPARK target_verify graph gqa", "DSPARK draft_block graph gqa"}


@pytest.mark.slow
def test_a_release_that_counts_the_block_twice_differs_from_it_in_a_length(tmp_path: Path) -> None:
    assert compare("ascend@0.5.18", KEPT, tmp_path / "compared.json") == Exit.FINDINGS
    document = msgspec.json.decode((tmp_path / "compared.json").read_bytes(), type=ComparisonDocument)

    assert document.first is not None
    assert (document.first.path.split()[:3], document.first.field) == (
        ["DFLASH", "target_verify", "eager"],
        "kv_lengths",
    )
    assert document.first.a > document.first.b == document.first.right  # type: ignore[operator]
