"""The operators that rotate pairs of a head's dimensions by an angle that grows with the position (RoPE).

Signatures: `op_plugin_functions.yaml` of torch_npu 2.14, and sglang's calls of sgl_kernel_npu.
"""

from collections.abc import Sequence

import torch

from harness.npu import fault
from harness.npu.arguments import Arguments
from harness.npu.normalization import scaled_to_unit, wide
from harness.npu.overloads import Operator, operator
from harness.npu.registry import emulates

_MODES = ("half", "interleave")


def _rotated(rows: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, mode: str) -> torch.Tensor:
    """`rows` with dimension i turned against i + half the width (`half`), or each even one against the next.

    `cosine` and `sine` are as wide as what is turned: the first dimensions of `rows`; the others stay.
    """
    width = cosine.shape[-1]
    turned, kept = wide(rows[..., :width]), rows[..., width:]
    if mode == "half":
        first, second = turned.chunk(2, -1)
        across = torch.cat([-second, first], -1)
    else:
        across = torch.stack([-turned[..., 1::2], turned[..., 0::2]], -1).flatten(-2)
    return torch.cat([(turned * wide(cosine) + across * wide(sine)).to(rows.dtype), kept], -1)


def _spread(angles: torch.Tensor, mode: str) -> torch.Tensor:
    """Values per pair as values per dimension."""
    return torch.cat([angles, angles], -1) if mode == "half" else angles.repeat_interleave(2, -1)


@operator
def npu_rotary_mul(
    input: torch.Tensor,
    r1: torch.Tensor,
    r2: torch.Tensor,
    rotary_mode: str = "half",
    rotate: torch.Tensor | None = None,
) -> torch.Tensor:
    """`input` turned by the angles whose cosines are `r1` and sines `r2`, per dimension."""
    arguments = Arguments("npu_rotary_mul")
    arguments.require_emulated(rotate is None, "rotate", "a tensor")
    arguments.require(rotary_mode in _MODES, "rotary_mode", rotary_mode, f"it must be one of {list(_MODES)}")
    for name, angles in (("r1", r1), ("r2", r2)):
        whole = angles.shape[-1] == input.shape[-1]
        arguments.require_shape(whole, name, angles, f"its last axis must be that of input, {input.shape[-1]}")
    return _rotated(input, r1, r2, rotary_mode)


@operator
def npu_mrope(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    cos_sin_cache: torch.Tensor,
    head_size: int,
    *,
    mrope_section: Sequence[int] | None = None,
    rotary_mode: str | None = "half",
    cache_mode: str | None = "default",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (token, head * `head_size`) turned by the angles of their tokens' `positions`.

    A row of `cos_sin_cache` holds the cosines, then the sines, of one position's angles.
    """
    arguments = Arguments("npu_mrope")
    # Assumption: sections of zero, which sglang passes for text, ask for the same position in all dimensions.
    arguments.require_emulated(not any(mrope_section or ()), "mrope_section", mrope_section)
    arguments.require_emulated(cache_mode in (None, "default"), "cache_mode", cache_mode)
    mode = rotary_mode or "half"
    arguments.require(mode in _MODES, "rotary_mode", mode, f"it must be one of {list(_MODES)}")
    arguments.require_integers("positions", positions)
    arguments.require_shape(positions.shape == query.shape[:1], "positions", positions, f"it must be [{len(query)}]")
    arguments.require_one_dtype({"query": query, "key": key})
    for name, rows in (("query", query), ("key", key)):
        whole = rows.dim() == 2 and rows.shape[1] % head_size == 0 and len(rows) == len(query)
        arguments.require_shape(whole, name, rows, f"it must be ({len(query)}, heads * head_size {head_size})")
    outside = positions[(positions < 0) | (positions >= len(cos_sin_cache))]
    if outside.numel():
        # Assumption: the device checks no positions before it reads their angles.
        fault.fail(
            arguments.operator, f"position {int(outside[0])}, but cos_sin_cache has {len(cos_sin_cache)} of them"
        )
    cosine, sine = cos_sin_cache[positions.long()].unsqueeze(1).chunk(2, -1)

    def turned(rows: torch.Tensor) -> torch.Tensor:
        heads = rows.view(len(rows), -1, head_size)
        return _rotated(heads, _spread(cosine, mode), _spread(sine, mode), mode).view(rows.shape)

    return turned(query), turned(key)


@emulates("sgl_kernel_npu.norm.split_qkv_rmsnorm_rope.split_qkv_rmsnorm_rope")
@Operator
def split_qkv_rmsnorm_rope(
    input: torch.Tensor,
    sin: torch.Tensor,
    cos: torch.Tensor,
    q_hidden_size: int,
    kv_hidden_size: int,
    head_dim: int,
    eps: float | None = None,
    q_weight: torch.Tensor | None = None,
    k_weight: torch.Tensor | None = None,
    q_bias: torch.Tensor | None = None,
    k_bias: torch.Tensor | None = None,
    is_neox_style: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The queries, keys and values of (token, queries + keys + values); the first two normalised and turned.

    `sin` and `cos` have a value per dimension that is turned. Without `eps` nothing is normalised.
    """
    arguments = Arguments("split_qkv_rmsnorm_rope")
    width = q_hidden_size + 2 * kv_hidden_size
    whole = input.dim() == 2 and input.shape[1] == width
    arguments.require_shape(whole, "input", input, f"it must be (token, q_hidden_size + 2 * kv_hidden_size = {width})")
    tokens = len(input)
    for name, angles in (("sin", sin), ("cos", cos)):
        arguments.require_shape(
            angles.numel() == tokens * angles.shape[-1] and angles.shape[-1] <= head_dim,
            name, angles, f"there must be {tokens} rows, as wide as head_dim {head_dim} or narrower",
        )  # fmt: skip
    mode = "half" if is_neox_style else "interleave"

    def turned(rows: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
        heads = wide(rows.reshape(tokens, -1, head_dim))
        if eps is not None:
            heads, _ = scaled_to_unit(heads, eps)
            heads = heads if weight is None else heads * wide(weight)
            heads = heads if bias is None else heads + wide(bias)
        cosine, sine = cos.reshape(tokens, 1, -1), sin.reshape(tokens, 1, -1)
        return _rotated(heads, cosine, sine, mode).to(input.dtype).reshape(tokens, -1)

    query, key, value = torch.split(input, [q_hidden_size, kv_hidden_size, kv_hidden_size], -1)
    return turned(query, q_weight, q_bias), turned(key, k_weight, k_bias), value.contiguous()


@emulates("sgl_kernel_npu.norm.fused_rope_qk_mqa.fused_rope_qk_mqa")
@Operator
def fused_rope_qk_mqa(
    query: torch.Tensor, key: torch.Tensor, cos_sin: torch.Tensor, rotary_dim: int, is_neox_style: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys (token, head, dimension) with their first `rotary_dim` dimensions turned.

    A row of `cos_sin` holds the cosines, then the sines, of one token's angles. Read in sgl_kernel_npu's kernel: where
    neighbours are turned (not `is_neox_style`) they stay neighbours.
    """
    arguments = Arguments("fused_rope_qk_mqa")
    for name, rows in (("query", query), ("key", key)):
        whole = rows.dim() == 3 and len(rows) == len(cos_sin) and rows.shape[2] >= rotary_dim
        arguments.require_shape(whole, name, rows, f"it must be ({len(cos_sin)}, heads, {rotary_dim} or more)")
    arguments.require_shape(cos_sin.shape[-1] == rotary_dim, "cos_sin", cos_sin, f"it must end with {rotary_dim}")
    mode = "half" if is_neox_style else "interleave"
    cosine, sine = (_spread(angles, mode) for angles in cos_sin.unsqueeze(1).chunk(2, -1))
    return _rotated(query, cosine, sine, mode), _rotated(key, cosine, sine, mode)
