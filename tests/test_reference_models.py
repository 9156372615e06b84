"""The reference's own decoders, held to transformers, in a process without the emulation."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from harness.models.store import RANDOM, folder
from harness.reference.attending import mix
from harness.reference.transformer import greedy
from harness.scenario.session import SessionTarget
from tests.engine import entry_point
from tests.engine.prompts import NEW_TOKENS, prompts


def _transformers(models: Path) -> list[list[int]]:
    """The tokens of transformers after each prompt."""
    command = [sys.executable, "-m", "tests.engine.reference", str(models)]
    done = subprocess.run(command, cwd=entry_point.ROOT, capture_output=True, text=True, timeout=300, check=True)
    tokens: list[list[int]] = json.loads(done.stdout.splitlines()[-1])["tokens"]
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("target", RANDOM)
def test_the_reference_generates_the_tokens_of_transformers(target: SessionTarget) -> None:
    models = folder(target)
    expected = _transformers(models)

    assert [list(greedy(models / "target", tuple(prompt), NEW_TOKENS).tokens) for prompt in prompts()] == expected
    # A model that only repeats itself would not show which positions it attends to.
    assert any(len(set(tokens)) > 8 for tokens in expected)


def test_a_window_hides_what_lies_before_it() -> None:
    keys = np.zeros((5, 1, 2))
    values = np.arange(5.0)[:, np.newaxis, np.newaxis] * np.ones((1, 1, 2))

    assert mix(keys[3:], keys, values, 1.0)[:, 0, 0].tolist() == [1.5, 2.0]
    assert mix(keys[3:], keys, values, 1.0, window=2)[:, 0, 0].tolist() == [2.5, 3.5]
