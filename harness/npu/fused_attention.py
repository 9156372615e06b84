"""The operators of fused infer attention (FIA), in both versions."""

from collections.abc import Iterable
from typing import Any

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention_mask import EVERYTHING, Masking, above_diagonal
from harness.npu.boundary import AttentionRead
from harness.npu.fused_call import FusedCall
from harness.npu.overloads import attention_operator, host_query, taking_what
from harness.npu.query_layout import QueryArguments

# Arguments of both versions, and of each of them, that are accepted only at the values that ask for nothing.
_NEUTRAL: dict[str, Any] = {"pse_shift": None, "inner_precise": 0}
_NEUTRAL_1: dict[str, Any] = {
    **_NEUTRAL,
    **dict.fromkeys(("dequant_scale1", "quant_scale1", "dequant_scale2", "quant_scale2", "quant_offset2")),
    **dict.fromkeys(("antiquant_scale", "antiquant_offset", "key_antiquant_scale", "key_antiquant_offset")),
    **dict.fromkeys(("value_antiquant_scale", "value_antiquant_offset", "key_rope_antiquant_scale")),
    **dict.fromkeys(("query_padding_size", "kv_padding_size")),
    **dict.fromkeys(("key_shared_prefix", "value_shared_prefix", "actual_shared_prefix_len")),
    **dict.fromkeys(("antiquant_mode", "key_antiquant_mode", "value_antiquant_mode"), 0),
    "softmax_lse_flag": False,
}
_NEUTRAL_2: dict[str, Any] = {
    **_NEUTRAL,
    **dict.fromkeys(("dequant_scale_query", "dequant_scale_key", "dequant_offset_key", "dequant_scale_value")),
    **dict.fromkeys(("dequant_offset_value", "dequant_scale_key_rope", "quant_scale_out", "quant_offset_out")),
    **dict.fromkeys(("quant_scale_p", "query_dtype", "key_dtype", "value_dtype", "query_rope_dtype")),
    **dict.fromkeys(("key_rope_dtype", "key_shared_prefix_dtype", "value_shared_prefix_dtype")),
    **dict.fromkeys(("dequant_scale_query_dtype", "dequant_scale_key_dtype", "dequant_scale_value_dtype")),
    **dict.fromkeys(("dequant_scale_key_rope_dtype", "out_dtype")),
    **dict.fromkeys(("query_quant_mode", "key_quant_mode", "value_quant_mode"), 0),
}


def _given(**tensors: torch.Tensor | None) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


@attention_operator(neutral=_NEUTRAL_1, announces=AttentionRead)
def npu_fused_infer_attention_score(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    atten_mask: torch.Tensor | None = None,
    actual_seq_lengths: Iterable[Any] | None = None,
    actual_seq_lengths_kv: Iterable[Any] | None = None,
    block_table: torch.Tensor | None = None,
    query_rope: torch.Tensor | None = None,
    key_rope: torch.Tensor | None = None,
    num_heads: int = 1,
    scale: float = 1.0,
    pre_tokens: int = EVERYTHING,
    next_tokens: int = EVERYTHING,
    input_layout: str = "BSH",
    num_key_value_heads: int = 0,
    sparse_mode: int = 0,
    block_size: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and a placeholder for softmax sums."""
    arguments = Arguments("npu_fused_infer_attention_score")
    ends = None if actual_seq_lengths is None else arguments.lengths("actual_seq_lengths", actual_seq_lengths)
    return FusedCall(
        arguments=arguments,
        query=QueryArguments(arguments, input_layout, "num_heads", num_heads, "actual_seq_lengths", ends),
        tensors=_given(query=query, key=key, value=value, query_rope=query_rope, key_rope=key_rope),
        block_table=block_table,
        block_size=block_size,
        kv_heads=num_key_value_heads or num_heads,
        kv_lengths_name="actual_seq_lengths_kv",
        kv_lengths=actual_seq_lengths_kv,
        masking=Masking(atten_mask, sparse_mode, pre_tokens, next_tokens),
        scale=scale,
    ).compute()


@attention_operator(neutral=_NEUTRAL_2, announces=AttentionRead)
def npu_fused_infer_attention_score_v2(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    query_rope: torch.Tensor | None = None,
    key_rope: torch.Tensor | None = None,
    atten_mask: torch.Tensor | None = None,
    actual_seq_qlen: Iterable[Any] | None = None,
    actual_seq_kvlen: Iterable[Any] | None = None,
    block_table: torch.Tensor | None = None,
    learnable_sink: torch.Tensor | None = None,
    num_query_heads: int = 1,
    num_key_value_heads: int = 0,
    softmax_scale: float = 1.0,
    pre_tokens: int = EVERYTHING,
    next_tokens: int = EVERYTHING,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    block_size: int = 0,
    return_softmax_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithms of softmax sums where they are asked for, else a placeholder."""
    arguments = Arguments("npu_fused_infer_attention_score_v2")
    ends = None if actual_seq_qlen is None else arguments.lengths("actual_seq_qlen", actual_seq_qlen)
    return FusedCall(
        arguments=arguments,
        query=QueryArguments(arguments, input_layout, "num_query_heads", num_query_heads, "actual_seq_qlen", ends),
        tensors=_given(query=query, key=key, value=value, query_rope=query_rope, key_rope=key_rope),
        block_table=block_table,
        block_size=block_size,
        kv_heads=num_key_value_heads or num_query_heads,
        kv_lengths_name="actual_seq_kvlen",
        kv_lengths=actual_seq_kvlen,
        masking=Masking(atten_mask, sparse_mode, pre_tokens, next_tokens),
        scale=softmax_scale,
        # Assumption: a sink works in every layout, and in any floating type; sglang uses it in BSND. Source: torch_npu
        # 2.14.0 documents TND and NTD_TND, and bfloat16. On a device: a sink in BSND against dense attention.
        sink=learnable_sink,
        with_sums=return_softmax_lse,
    ).compute()


@host_query
@taking_what(npu_fused_infer_attention_score)
def _npu_fused_infer_attention_score_get_max_workspace(**arguments: Any) -> torch.Tensor:
    """The memory that the ``.out`` overload needs: none here. What the operator would refuse is refused already.

    Assumption: it is the same tiling that refuses. Source: torch_npu hands every argument to the first phase of the
    operator itself (op-plugin, `EXEC_GET_MAX_WORKSPACE_CMD`). On a device: ask for the workspace with heads that do not
    fit the cache.
    """
    others = {name: value for name, value in arguments.items() if name in _NEUTRAL_1}
    Arguments("_npu_fused_infer_attention_score_get_max_workspace").require_neutral(others, _NEUTRAL_1)
    npu_fused_infer_attention_score.events(arguments | _causal(arguments.get("atten_mask")))
    return torch.empty(0, device="cpu")


def _causal(mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """A causal mask in place of one of that shape: while a graph is captured, nothing is known of what memory holds."""
    if mask is None or mask.shape[-2:] != (2048, 2048):
        return {}
    return {"atten_mask": above_diagonal(2048).to(mask.dtype).expand(mask.shape)}
