"""Unmodified sglang, started as a whole on the emulated NPU, beside a plain transformers."""

import subprocess
from pathlib import Path

import pytest

from tests.engine.compare import Answers, EngineError, expected, generated, read_answers, verdict, write_pair


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pair")
    write_pair(folder)
    return folder


@pytest.fixture(scope="module")
def right(pair: Path) -> list[list[int]]:
    return expected(pair)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--graphs",)], ids=["eager", "graphs"])
def test_the_engine_of_0_5_23_generates_the_tokens_of_transformers(
    options: tuple[str, ...], pair: Path, right: list[list[int]], tmp_path: Path
) -> None:
    answers = generated("0.5.23", pair, tmp_path, *options)

    assert answers.tokens == right
    assert answers.accepted > 1.5  # so that blocks were accepted to different lengths


def test_a_token_that_differs_is_named_with_its_place() -> None:
    right = [[1, 2, 3], [4, 5, 6]]

    assert verdict(Answers(right, [12, 12]), right) == "as transformers, 2.00 tokens a step"
    assert verdict(Answers([[1, 2, 3], [4, 0, 6]], [24, 24]), right).startswith("WRONG from token 1 of prompt 1, 1.00")
    assert verdict(Answers([[1, 2, 3], [4, 5]], [24, 24]), right).startswith("WRONG from token 2 of prompt 1")


def test_an_engine_that_ends_says_how() -> None:
    ended = "Traceback\n  raise DeviceFault(\nharness.npu.fault.DeviceFault: error code 507015\n[Received sigquit]"

    with pytest.raises(EngineError, match=r"^harness\.npu\.fault\.DeviceFault: error code 507015$"):
        read_answers(subprocess.CompletedProcess([], -9, "", ended))
