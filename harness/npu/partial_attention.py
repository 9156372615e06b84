"""Attention computed in parts, over different keys, and put together again by the sums of their softmax."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import attend_with_sums, visible_in_band
from harness.npu.attention_mask import is_causal
from harness.npu.overloads import operator

_MOST_PARTS = 16
_WIDEST_HEAD, _HEAD_STEP = 512, 8
_NOPE, _ROPE, _VALUE = 128, 64, 128
_RING_MASK = (512, 512)
_FIRST, _LATER = "calc_type_first_ring", "calc_type_default"
_CAUSAL, _NO_MASK = "mask_type_triu", "no_mask"
_KERNELS = ("kernel_type_default", "kernel_type_high_precision")


def _together(outputs: torch.Tensor, sums: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Join parts along the first axis; `sums` are the logarithms of the sums that each part was divided by."""
    total = sums.logsumexp(0)
    return (outputs * (sums - total).exp().unsqueeze(-1)).sum(0), total


@operator
def npu_attention_update(
    lse: Sequence[torch.Tensor], local_out: Sequence[torch.Tensor], update_type: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The whole attention of parts, and, where `update_type` is 1, its softmax sums (else a placeholder)."""
    arguments = Arguments("npu_attention_update")
    parts = len(lse)
    arguments.require(1 <= parts <= _MOST_PARTS, "lse", f"of {parts} parts", f"there may be 1 to {_MOST_PARTS}")
    arguments.require(len(local_out) == parts, "local_out", f"of {len(local_out)} parts", f"lse has {parts}")
    arguments.require(update_type in (0, 1), "update_type", update_type, "it must be 0 or 1")
    rows = len(lse[0])
    for sums, output in zip(lse, local_out, strict=True):
        arguments.require_shape(tuple(sums.shape) == (rows,), "lse", sums, f"it must be ({rows},)")
        arguments.require(sums.dtype in (torch.float32, torch.float64), "lse", sums.dtype, "it must be float32")
        whole = output.dim() == 2 and len(output) == rows and output.shape[1] == local_out[0].shape[1]
        arguments.require_shape(whole, "local_out", output, f"it must be ({rows}, D), and D the same for all parts")
        fits = output.shape[1] % _HEAD_STEP == 0 and output.shape[1] <= _WIDEST_HEAD
        rule = f"D must be a multiple of {_HEAD_STEP} up to {_WIDEST_HEAD}"
        arguments.require_shape(fits, "local_out", output, rule)
    arguments.require_one_dtype({f"local_out[{index}]": output for index, output in enumerate(local_out)})
    stacked = torch.stack(tuple(lse))
    output, total = _together(torch.stack(tuple(local_out)).to(stacked.dtype), stacked)
    return output.to(local_out[0].dtype), total if update_type else torch.zeros(1, device="cpu")


class _Ring(NamedTuple):
    """Arguments of `npu_ring_mla` by name, checked."""

    arguments: Arguments
    query: tuple[torch.Tensor, torch.Tensor]
    key: tuple[torch.Tensor, torch.Tensor]
    value: torch.Tensor
    heads: int
    kv_heads: int

    def check(self) -> None:
        """Refuse shapes and types that the device refuses."""
        arguments = self.arguments
        arguments.require_heads(("head_num", self.heads), ("kv_head_num", self.kv_heads))
        queries, keys = len(self.query[0]), len(self.key[0])
        tensors = {
            "q_nope": (self.query[0], queries, self.heads, _NOPE),
            "q_rope": (self.query[1], queries, self.heads, _ROPE),
            "k_nope": (self.key[0], keys, self.kv_heads, _NOPE),
            "k_rope": (self.key[1], keys, self.kv_heads, _ROPE),
            "value": (self.value, keys, self.kv_heads, _VALUE),
        }
        for name, (tensor, *shape) in tensors.items():
            arguments.require_shape(list(tensor.shape) == shape, name, tensor, f"it must be {shape}")
        arguments.require_one_dtype({name: tensor for name, (tensor, *_) in tensors.items()})

    def lengths(self, seqlen: torch.Tensor, causal: bool) -> list[tuple[int, int]]:
        """Queries and keys of each request; one row of `seqlen` is both, two are one each."""
        arguments = self.arguments
        shaped = seqlen.dim() == 1 or (seqlen.dim() == 2 and len(seqlen) == 2)
        arguments.require_shape(shaped, "seqlen", seqlen, "it must be (batch,) or (2, batch)")
        both = seqlen.expand(2, -1) if seqlen.dim() == 1 else seqlen
        pairs = list(zip(*(arguments.lengths("seqlen", row) for row in both), strict=True))
        arguments.require(
            all(queries for queries, _ in pairs), "seqlen", both.tolist(), "no request is without queries"
        )
        # Assumption: that a request has no key or as many as queries holds for the causal mask alone, since sglang
        # (0.5.15 to 0.5.22) gives shorter prefixes without a mask.
        enough = not causal or all(keys == 0 or keys >= queries for queries, keys in pairs)
        arguments.require(
            enough, "seqlen", both.tolist(), "with a causal mask, keys must be as many as queries, or none"
        )
        totals = [sum(column) for column in zip(*pairs, strict=True)]
        whole = totals[0] == len(self.query[0])
        arguments.require(whole, "seqlen", both.tolist(), f"the sum of queries must be {len(self.query[0])}")
        # Assumption: keys after the last request's are not looked at.
        arguments.require(totals[1] <= len(self.value), "seqlen", both.tolist(), f"there are {len(self.value)} keys")
        return pairs


@operator(writes=True, returns=("output", "softmax_lse"), host=("seqlen",))
def npu_ring_mla(
    q_nope: torch.Tensor,
    q_rope: torch.Tensor,
    k_nope: torch.Tensor,
    k_rope: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    seqlen: torch.Tensor,
    head_num: int,
    kv_head_num: int,
    *,
    pre_out: torch.Tensor | None = None,
    prev_lse: torch.Tensor | None = None,
    qk_scale: float = 1.0,
    kernel_type: str | None = None,
    mask_type: str | None = None,
    input_layout: str | None = None,
    calc_type: str | None = None,
    output: torch.Tensor,
    softmax_lse: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write attention over keys that are not cached, joined with an earlier part, to `output` and `softmax_lse`."""
    arguments = Arguments("npu_ring_mla")
    ring = _Ring(arguments, (q_nope, q_rope), (k_nope, k_rope), value, head_num, kv_head_num)
    ring.check()
    for name, given, known in (
        ("kernel_type", kernel_type, (None, *_KERNELS)),
        ("mask_type", mask_type, (None, _CAUSAL, _NO_MASK)),
        ("input_layout", input_layout, (None, "type_bsnd")),
        ("calc_type", calc_type, (None, _FIRST, _LATER)),
    ):
        arguments.require(given in known, name, given, f"it must be one of {known[1:]}")
    if causal := mask_type == _CAUSAL:
        arguments.require_shape(tuple(mask.shape) == _RING_MASK, "mask", mask, f"it must be {_RING_MASK}")
        arguments.require_emulated(is_causal(mask), "mask", "one that is not causal")
    shapes = {"output": (output, q_nope.shape), "softmax_lse": (softmax_lse, (head_num, len(q_nope)))}
    if calc_type != _FIRST:
        if pre_out is None or prev_lse is None:
            missing = "pre_out" if pre_out is None else "prev_lse"
            raise RuntimeError(f"npu_ring_mla: {missing} is None: {calc_type or _LATER} needs it")
        shapes |= {"pre_out": (pre_out, q_nope.shape), "prev_lse": (prev_lse, (head_num, len(q_nope)))}
    for name, (tensor, shape) in shapes.items():
        arguments.require_shape(tensor.shape == shape, name, tensor, f"it must be {list(shape)}")
    pairs = ring.lengths(seqlen, causal)

    query, key = torch.cat(ring.query, dim=-1), torch.cat(ring.key, dim=-1)
    attended, sums = [], []
    start, first = 0, 0
    for queries, keys in pairs:
        visible = visible_in_band(queries, keys, offset=keys - queries) if causal else None
        part, part_sums = attend_with_sums(
            query[start : start + queries], key[first : first + keys], value[first : first + keys], qk_scale, visible
        )
        attended.append(part)
        sums.append(part_sums)
        start, first = start + queries, first + keys
    whole, whole_sums = torch.cat(attended), torch.cat(sums)
    if calc_type != _FIRST and pre_out is not None and prev_lse is not None:
        earlier = prev_lse.T.to(whole_sums.dtype)
        whole, whole_sums = _together(
            torch.stack([pre_out, whole]).to(whole_sums.dtype), torch.stack([earlier, whole_sums])
        )
    output.copy_(whole)
    softmax_lse.copy_(whole_sums.T)
    return output, softmax_lse
