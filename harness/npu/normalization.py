"""The operators that normalise by the root of the mean square (RMS norm).

Signatures: the schemas in torch_npu 2.14. A `gamma` of fewer axes than the input stands for its last ones.

Assumption: different types are promoted, where torch_npu's documentation wants one type. sglang hands the embeddings of
a draft block on in bfloat16 whatever the model's type is (`ModelRunner._extend_forward_kwargs`, 0.5.16 to 0.5.23), so
that a model in float32, whose results can be compared closely, would not run otherwise.
"""

import torch

from harness.npu.arguments import Arguments
from harness.npu.overloads import operator


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in the precision in which it is computed with: float32, or float64 where it is that."""
    # Assumption: the device's own precision inside an operator need not be emulated.
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def scaled_to_unit(rows: torch.Tensor, epsilon: float, axes: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows` over the root of their mean square in the last `axes` axes, and the factor, both in wide precision."""
    last = tuple(range(-axes, 0))
    precise = wide(rows)
    factor = torch.rsqrt(precise.square().mean(last, keepdim=True) + epsilon)
    return precise * factor, factor


def _require_gamma(arguments: Arguments, rows: torch.Tensor, gamma: torch.Tensor) -> None:
    axes = gamma.dim()
    fits = 0 < axes <= rows.dim() and rows.shape[-axes:] == gamma.shape
    arguments.require_shape(fits, "gamma", gamma, f"it must be the last axes of the input, {list(rows.shape)}")


def _normalised(rows: torch.Tensor, gamma: torch.Tensor, epsilon: float) -> tuple[torch.Tensor, torch.Tensor]:
    unit, factor = scaled_to_unit(rows, epsilon, gamma.dim())
    # Assumption: the weight is applied in the wide precision, before the result is narrowed.
    return (unit * wide(gamma)).to(torch.promote_types(rows.dtype, gamma.dtype)), factor


@operator
def npu_rms_norm(input: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06) -> tuple[torch.Tensor, torch.Tensor]:
    """`input` normalised and weighted by `gamma`; and the factor that normalises, in float32 or wider."""
    _require_gamma(Arguments("npu_rms_norm"), input, gamma)
    return _normalised(input, gamma, epsilon)


@operator
def npu_gemma_rms_norm(
    input: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `npu_rms_norm`, weighted by one more than `gamma`."""
    _require_gamma(Arguments("npu_gemma_rms_norm"), input, gamma)
    normalised, factor = _normalised(input, 1 + wide(gamma), epsilon)
    return normalised.to(torch.promote_types(input.dtype, gamma.dtype)), factor


@operator
def npu_add_rms_norm(
    x1: torch.Tensor, x2: torch.Tensor, gamma: torch.Tensor, epsilon: float = 1e-06
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The sum of `x1` and `x2` normalised and weighted by `gamma`; the factor that normalises; and the sum."""
    arguments = Arguments("npu_add_rms_norm")
    arguments.require_shape(x1.shape == x2.shape, "x2", x2, f"it must be that of x1, {list(x1.shape)}")
    _require_gamma(arguments, x1, gamma)
    # Assumption: the sum is rounded to the type in which it is returned before it is normalised. On a device: the
    # difference is below the noise of half precision, unless the sum overflows.
    total = x1 + x2
    return *_normalised(total, gamma, epsilon), total
