"""`harness accept` on a real sglang server on the emulated NPU: one server for all, which the last test kills."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.campaign.accept_tiny import reference
from harness.commands import accept
from harness.errors import CannotJudge, Exit
from harness.models.prompts import texts
from harness.models.store import TRAINED
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_counts import of_replies
from harness.parity.acceptance_file import read
from harness.parity.acceptance_run import Run
from harness.parity.acceptance_verdict import Verdict
from harness.subject.server import api
from harness.subject.server.api import Generated
from harness.subject.server.launched import Launched, launched
from harness.subject.source import resolve

pytestmark = pytest.mark.slow

COUNT, NEW_TOKENS = 16, 48
#: What `docs/emulated-sglang.md` says a server needs; without a tokenizer, which the trained pair has none of.
ARGUMENTS = (
    f"--attention-backend ascend --model-path {TRAINED / 'target'} --speculative-algorithm DFLASH "
    f"--speculative-draft-model-path {TRAINED / 'DFLASH'} --speculative-num-draft-tokens 8 --dtype float32 "
    "--page-size 128 --mem-fraction-static 0.5 --max-total-tokens 4096 --max-running-requests 8 --context-length 1024 "
    "--sampling-backend pytorch --skip-tokenizer-init --random-seed 1 --disable-cuda-graph --skip-server-warmup"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Launched]:
    with launched(resolve("0.5.23"), ARGUMENTS, "emulated", print) as started:
        yield started


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first prompts of the trained pair, which are its longest."""
    path = tmp_path_factory.mktemp("prompts") / "prompts.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode({"input_ids": text}) + b"\n" for text in texts()[:COUNT]))
    return path


def _run(server: Launched, prompts: Path, out: Path, base: Path | None = None, concurrency: int = 8) -> Exit:
    asking = accept.Asking(prompts, 0, None, "plain", False, NEW_TOKENS, concurrency, 24, base, 0, 300)
    return accept.run(server.url, None, False, None, "emulated", asking, "", False, out)


@pytest.fixture(scope="module")
def run(server: Launched, prompts: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("run") / "run.jsonl"
    assert _run(server, prompts, out) is Exit.PASSED
    return read(out)


def test_the_server_accepts_in_every_verify_what_plain_torch_accepts(run: Run) -> None:
    torch, numbers = reference("DFLASH").replies, range(COUNT)

    assert [run.replies[number].tokens for number in numbers] == [torch[number].tokens for number in numbers]
    assert (of_replies(run.replies, numbers, 8).histograms == of_replies(torch, numbers, 8).histograms).all()


def test_what_the_server_runs_is_recorded(run: Run) -> None:
    system, setting = run.header.system, run.header.setting

    assert (system.release, system.dtype, system.graphs, system.seed) == ("0.5.23", "float32", False, 1)
    assert (setting.algorithm, setting.draft_tokens, setting.concurrency) == ("DFLASH", 8, 8)


def test_the_target_alone_chooses_what_was_answered_and_leads_as_in_torch(run: Run) -> None:
    torch = reference("DFLASH").own

    for number in range(COUNT):
        assert run.own[number].choices == run.replies[number].tokens
        assert run.own[number].gaps == pytest.approx(torch[number].gaps, abs=3.1e-4)  # the bound of the logits' noise


def test_a_second_run_along_the_first_ones_answers_is_equivalent_on_every_rung(
    server: Launched, run: Run, prompts: Path, tmp_path: Path
) -> None:
    assert _run(server, prompts, tmp_path / "again.jsonl", base=run.path) is Exit.PASSED
    found = compare(run, read(tmp_path / "again.jsonl"))

    assert [(rung.design, rung.verdict) for rung in found.rungs] == [
        ("replay", Verdict.EQUIVALENT),
        ("free", Verdict.EQUIVALENT),
    ]
    assert (found.exactness.wrong, found.exactness.compared) == (0, 4 * COUNT * NEW_TOKENS)


def test_a_server_that_is_killed_half_way_is_reported_and_what_it_answered_is_kept(
    server: Launched, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "killed.jsonl"
    generate = api.Server.generate
    answered = 0

    def killing(self: api.Server, *asked: object) -> Generated:
        nonlocal answered
        if answered == 2:
            os.killpg(server.group, signal.SIGKILL)
        answered += 1
        return generate(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(api.Server, "generate", killing)
    monkeypatch.setattr(api, "PAUSES", (0.0,))

    with pytest.raises(CannotJudge, match=rf"nobody answers at .* 2 of {COUNT} prompts are answered, and kept in"):
        _run(server, prompts, out, concurrency=1)
    left = read(out)
    assert list(left.replies) == [0, 1]
    with pytest.raises(CannotJudge, match=f"answers to 2 of {COUNT} prompts"):
        compare(left, left)
