"""The operators that multiply every head by a matrix of its own, against float64, head by head."""

import numpy as np
import torch

from harness.conformance.batch import Floats
from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule

PRODUCT = "npu.npu_transpose_batchmatmul"
WRITTEN_PRODUCT = "npu.batch_matmul_transpose"

TOKENS, HEADS, LATENT, WIDTH = 3, 4, 512, 128
_GENERATOR = torch.Generator().manual_seed(0)


def _random(*shape: int) -> torch.Tensor:
    """Bfloat16 of a size at which a sum over `LATENT` products is about 1."""
    drawn = torch.randn(shape, dtype=torch.float64, generator=_GENERATOR)
    return drawn.mul(LATENT**-0.25).bfloat16()


ATTENDED, MATRICES = _random(TOKENS, HEADS, LATENT), _random(HEADS, LATENT, WIDTH)


def heads_second() -> Arguments:
    """As sglang asks for it after attention."""
    permutations = {"perm_x1": (1, 0, 2), "perm_x2": (0, 1, 2), "perm_y": (1, 0, 2)}
    return {"input": ATTENDED, "weight": MATRICES, **permutations}


def into() -> Arguments:
    """The same, with the memory for the result."""
    return {"tensor_a": ATTENDED, "tensor_b": MATRICES, "tensor_c": torch.zeros(TOKENS, HEADS, WIDTH).bfloat16()}


def _multiplied() -> Floats:
    attended, matrices = ATTENDED.double().numpy(), MATRICES.double().numpy()
    return np.array([[row @ matrix for row, matrix in zip(token, matrices, strict=True)] for token in attended])


def returned() -> Expected:
    """Each head of each token times its matrix."""
    return {"output": _multiplied()}


def written() -> Expected:
    """The same, where it was to be written."""
    return {"tensor_c": _multiplied()}


CASES: tuple[Case, ...] = (
    accepted("every head is multiplied by its matrix",
             Rule("products.py", "`input` times `weight`, head by head"), Call(PRODUCT, heads_second), returned),
    accepted("every head times its matrix is written",
             Rule("products.py", "Write to `tensor_c` the product of `tensor_a` and `tensor_b`"),
             Call(WRITTEN_PRODUCT, into, written=("tensor_c",)), written),
)  # fmt: skip
