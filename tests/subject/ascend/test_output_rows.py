"""What attention makes goes to the model's output projection: rows of all heads, and of no other width."""

from typing import Any

import pytest
import torch

from harness.scenario import MetadataScenario, Request
from harness.scenario.metadata import Attention
from harness.subject.ascend.layers import Inputs, attend
from harness.subject.blame import ModelError

DECODE = MetadataScenario("NONE", "decode", ((Request(1), Request(1, row=2)),), attention=Attention(query_heads=4))
INPUTS = Inputs(torch.zeros(2, 4, 128), torch.zeros(2, 1, 128), torch.zeros(2, 1, 128))


def made(*shape: int) -> torch.Tensor:
    """What a layer gets from a backend that makes an output of that shape."""
    output = torch.zeros(shape)

    def run(*given: Any) -> torch.Tensor:
        return output

    return attend(run, None, DECODE, None, None, INPUTS, None)


def test_rows_of_all_heads_are_projected() -> None:
    assert made(2, 512).shape == (2, 512)


@pytest.mark.parametrize("shape", [(8, 128), (2, 4, 128), (4, 256)])
def test_rows_of_another_width_are_refused_as_a_model_does(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="takes rows of 512 numbers"):
        made(*shape)
