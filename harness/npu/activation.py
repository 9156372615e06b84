"""The activations of feed-forward layers."""

import torch

from harness.npu.arguments import Arguments
from harness.npu.normalization import wide
from harness.npu.overloads import operator


@operator
def npu_swiglu(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """SiLU of the first half of `input` along `dim`, times the second half."""
    arguments = Arguments("npu_swiglu")
    size = input.shape[dim]
    arguments.require_shape(size % 2 == 0, "input", input, f"axis {dim} must be even")
    gate, factor = wide(input).chunk(2, dim)
    return (torch.nn.functional.silu(gate) * factor).to(input.dtype)
