"""The operators that multiply every head by a matrix of its own: what MLA does after attention.

Signatures: `npu_transpose_batchmatmul` of torch_npu 2.14; `batch_matmul_transpose` is sgl_kernel_npu's own.
"""

from collections.abc import Sequence

import torch

from harness.npu.arguments import Arguments
from harness.npu.normalization import wide
from harness.npu.overloads import operator

#: (token, head, dimension) seen as (head, token, dimension), and back.
_HEADS_FIRST = (1, 0, 2)
_AS_IT_IS = (0, 1, 2)


def _of_heads(arguments: Arguments, heads: torch.Tensor, name: str, matrices: torch.Tensor) -> torch.Tensor:
    """(token, head, dimension) times (head, dimension, width), as (token, head, width)."""
    fits = heads.dim() == matrices.dim() == 3 and heads.shape[1:] == matrices.shape[:2]
    arguments.require_shape(fits, name, matrices, f"it must begin with the last axes of {list(heads.shape)}")
    return torch.einsum("thd,hdw->thw", wide(heads), wide(matrices))


@operator(neutral={"bias": None, "scale": None, "batch_split_factor": 1})
def npu_transpose_batchmatmul(
    input: torch.Tensor,
    weight: torch.Tensor,
    *,
    perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None,
    perm_y: Sequence[int] | None = None,
) -> torch.Tensor:
    """`input` times `weight`, head by head, where the permutations say that heads come second."""
    arguments = Arguments("npu_transpose_batchmatmul")
    emulated = {"perm_x1": (perm_x1, _HEADS_FIRST), "perm_x2": (perm_x2, _AS_IT_IS), "perm_y": (perm_y, _HEADS_FIRST)}
    for name, (given, only) in emulated.items():
        arguments.require_emulated(given is not None and tuple(given) == only, name, given)
    arguments.require_one_dtype({"input": input, "weight": weight})
    return _of_heads(arguments, input, "weight", weight).to(input.dtype)


@operator(writes=True, neutral={"format_mode": None, "quant_mode": None})
def batch_matmul_transpose(tensor_a: torch.Tensor, tensor_b: torch.Tensor, tensor_c: torch.Tensor) -> None:
    """Write to `tensor_c` the product of `tensor_a` and `tensor_b`, head by head.

    Names: those of sgl_kernel_npu's schema (read), which has two more that sglang leaves out.
    """
    arguments = Arguments("batch_matmul_transpose")
    made = _of_heads(arguments, tensor_a, "tensor_b", tensor_b)
    arguments.require_shape(made.shape == tensor_c.shape, "tensor_c", tensor_c, f"it must be {list(made.shape)}")
    tensor_c.copy_(made)
