"""The activations of feed-forward layers."""

import torch

from harness.npu.arguments import Arguments
from harness.npu.normalization import wide
from harness.npu.overloads import operator


@operator
def npu_swiglu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """SiLU of the first half of `self` along `dim`, times the second half."""
    arguments = Arguments("npu_swiglu")
    size = self.shape[dim]
    arguments.require_shape(size % 2 == 0, "self", self, f"axis {dim} must be even")
    gate, factor = wide(self).chunk(2, dim)
    return (torch.nn.functional.silu(gate) * factor).to(self.dtype)
