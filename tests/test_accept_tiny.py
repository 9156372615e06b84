"""The trained pair on real releases beside plain torch: the wrong ones are found, the right ones are the same."""

from pathlib import Path

import pytest

from harness.bisect.accept_scan import scan
from harness.campaign import accept_tiny
from harness.campaign.accept_tiny import Cell
from harness.commands import accept
from harness.errors import Exit, UsageError
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_file import read
from harness.parity.acceptance_verdict import Verdict
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor


@pytest.fixture(scope="module")
def wrong_release() -> dict[str, Cell]:
    """0.5.18, which counts the DFlash block twice, by executor."""
    cells = scan([resolve("0.5.18")], ["DFLASH"], print, anew=True)
    return {cell.played.executor: cell for cell in cells}


@pytest.mark.slow
def test_a_release_that_counts_the_block_twice_regresses_and_is_not_lossless(wrong_release: dict[str, Cell]) -> None:
    found = wrong_release["eager"].comparison

    assert found is not None
    assert (found.verdict, found.rungs[0].verdict) == (Verdict.NOT_LOSSLESS, Verdict.REGRESSED)
    assert found.rungs[0].difference.estimate < -0.7
    assert found.exactness.wrong >= 24


@pytest.mark.slow
def test_of_a_server_that_ends_what_it_answered_is_judged_and_its_end_is_a_finding(
    wrong_release: dict[str, Cell],
) -> None:
    cell = wrong_release["graph"]

    assert "raw_num_token" in cell.played.error and cell.comparison is None
    assert cell.exit_status is Exit.FINDINGS


@pytest.mark.slow
def test_a_right_release_is_equivalent_to_plain_torch_over_answers_and_step_by_step(tmp_path: Path) -> None:
    right, out = accept_tiny.reference("DFLASH"), tmp_path / "tiny.jsonl"
    asking = _nothing_asked()._replace(base=right.path, stride=right.header.stride)

    assert accept.run(None, None, True, "0.5.23", None, asking, "DFLASH", False, out) is Exit.PASSED
    found = compare(right, read(out))
    assert (found.verdict, found.exactness.wrong) == (Verdict.EQUIVALENT, 0)
    assert [(rung.design, rung.difference.estimate) for rung in found.rungs] == [("replay", 0), ("free", 0)]
    assert read(out).steps == right.steps


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["DFLASH", "EAGLE"])
def test_a_forced_acceptance_length_is_read_back_exactly(
    algorithm: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The release's own switch, as a positive control; its tokens are forced as well, and so are not the target's."""
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3")
    with Supervisor(resolve("0.5.23")) as supervisor:
        played = accept_tiny.play(supervisor, accept_tiny.drafted(algorithm), "eager")

    assert len(played.replies) == 24
    assert all(reply.histogram[2] == reply.verifies == sum(reply.histogram) for reply in played.replies)


def test_an_algorithm_without_a_trained_draft_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no trained draft for 'NGRAM': there is one for DFLASH, EAGLE"):
        accept.scan(None, None, ["NGRAM"], False, None, None)


def test_a_run_of_the_tiny_pair_does_not_take_the_place_of_another_file(tmp_path: Path) -> None:
    out = tmp_path / "tiny.jsonl"
    out.touch()

    with pytest.raises(UsageError, match="is there already: name another file, or delete it"):
        accept.run(None, None, True, "0.5.23", None, _nothing_asked(), "DFLASH", False, out)


def _nothing_asked() -> accept.Asking:
    """What the options ask of a server, of which the tiny pair has none."""
    return accept.Asking(None, 0, None, "plain", False, 48, 8, 0, None, 0, 60)
