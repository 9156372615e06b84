"""Qwen3-8B with its DFlash-b16 draft on an NPU accepts what it accepts on CUDA: `pytest cases -m "npu and nightly"`."""

import shlex
from pathlib import Path

import pytest

from harness.commands import accept
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_exactness import near_tie
from harness.parity.acceptance_file import read
from harness.parity.acceptance_verdict import Verdict
from harness.subject.source import Source


@pytest.fixture
def paths(device: str, request: pytest.FixtureRequest) -> dict[str, Path]:
    """The paths of the options; a run on an NPU without them fails, it does not skip."""
    if device != "npu":
        pytest.skip("eight billion parameters are for a real NPU: pytest cases -m 'npu and nightly'")
    options = ("--target-model", "--draft-model", "--cuda-run", "--cuda-run-again")
    named = {name: request.config.getoption(name) for name in options}
    if missing := [name for name, path in named.items() if path is None]:
        pytest.fail(f"the nightly acceptance run needs {', '.join(missing)}: see docs/acceptance.md.", pytrace=False)
    return named


@pytest.mark.nightly
def test_as_much_of_the_draft_is_accepted_as_on_cuda(
    paths: dict[str, Path], source: Source, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    reference = read(paths["--cuda-run"])
    aa = reference, read(paths["--cuda-run-again"])
    # Before hours of an NPU are spent: runs that are no A/A are refused here.
    if near_tie(reference.header.system, reference.header.system, aa) is None:
        pytest.fail(f"no noise can be measured: {aa[0].path} and {aa[1].path} have no scores.", pytrace=False)
    setting, header = reference.header.setting, reference.header
    arguments = (
        f"--model-path {shlex.quote(str(paths['--target-model']))} --attention-backend ascend --page-size 128 "
        f"--speculative-algorithm DFLASH --speculative-num-draft-tokens {setting.draft_tokens} "
        f"--speculative-draft-model-path {shlex.quote(str(paths['--draft-model']))} "
        f"--max-running-requests {setting.concurrency} --tp-size {header.system.tensor_parallel} "
        f"--random-seed {header.system.seed}"
    )
    asking = accept.Asking(
        request.config.getoption("--accept-prompts"),
        0,
        setting.count,
        setting.template,
        setting.thinking,
        setting.new_tokens,
        setting.concurrency,
        header.stride,
        paths["--cuda-run"],
        order=0,
        patience=600,
    )
    out = tmp_path / "npu.jsonl"
    accept.run(None, arguments, False, source.spec, "npu", asking, "", False, out)
    found = compare(reference, read(out), aa=aa)

    rungs = "; ".join(f"{rung.design} {rung.difference.estimate:+.2%} {rung.verdict.value}" for rung in found.rungs)
    assert found.verdict is Verdict.EQUIVALENT, f"{found.verdict.value}: {rungs}"
