"""Unmodified sglang, started as a whole on the emulated NPU, beside a plain transformers."""

from pathlib import Path

import pytest

from tests.engine.compare import expected, generated, write_pair


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
