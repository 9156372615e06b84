"""FlashAttention 3's plan of a decode, made once for all layers, and whether it fits the call that it is given to."""

from typing import Any

import torch

from harness.gpu.refusal import Refusal

_KERNEL = Refusal("get_scheduler_metadata")
#: Options that change how the work is split, and nothing of the result.
_OPTIONS = (
    "max_seqlen_k",
    "num_heads",
    "num_heads_k",
    "headdim",
    "qkv_dtype",
    "cu_seqlens_q",
    "page_size",
    "causal",
    "has_softcap",
    "num_splits",
)


def get_scheduler_metadata(
    *, batch_size: int, max_seqlen_q: int, cache_seqlens: torch.Tensor, **options: Any
) -> torch.Tensor:
    """The plan for `cache_seqlens`, int32 (batch,): int32 (1 + 4 * batch rounded up to four,).

    That is as large as sglang lets it be (`init_cuda_graph_state` of flashattention_backend.py, 0.5.15 to 0.5.23).
    Raises RuntimeError for lengths of another shape or type.
    """
    # Assumption: what the plan holds is the kernel's own business; here it holds the lengths it was made for, so that a
    # stale one is found. Source: "A stale precomputed buffer can lead to an OOB read" (flashattention_backend.py,
    # 0.5.23). On a GPU: a comparison of outputs shows a wrong split.
    _KERNEL.require_neutral(dict.fromkeys(options), dict.fromkeys(_OPTIONS, (None,)))
    _KERNEL.require(max_seqlen_q == 1, "max_seqlen_q", max_seqlen_q, "sglang plans decodes alone")
    _KERNEL.require_shape("cache_seqlens", cache_seqlens, (batch_size,), "batch_size")
    _KERNEL.require_int32("cache_seqlens", cache_seqlens)
    plan = cache_seqlens.new_zeros(1 + 4 * (-(-batch_size // 4) * 4))
    plan[1 : 1 + batch_size] = cache_seqlens
    return plan


def require_fresh(kernel: Refusal, plan: torch.Tensor, cache_seqlens: torch.Tensor) -> None:
    """Refuse a `plan` that `get_scheduler_metadata` has made for other lengths."""
    kernel.require_int32("scheduler_metadata", plan)
    planned = plan[1 : 1 + len(cache_seqlens)].tolist()
    rule = f"cache_seqlens is {cache_seqlens.tolist()}: the plan is stale"
    kernel.require(planned == cache_seqlens.tolist(), "scheduler_metadata", f"made for lengths {planned}", rule)
