"""FlashInfer's wrapper over keys that lie side by side, and the union of two attentions of the same queries."""

from typing import Any

import torch

from harness.gpu.attention_plan import counts
from harness.gpu.attention_wrapper import AttentionWrapper, attention, sights
from harness.gpu.refusal import Refusal

_MERGE = Refusal("merge_state")


class BatchPrefillWithRaggedKVCacheWrapper(AttentionWrapper):
    """Attention of each request's query rows to its own new keys."""

    _qo_indptr_buf: torch.Tensor
    _kv_indptr_buf: torch.Tensor

    def plan(
        self,
        qo_indptr: torch.Tensor,
        kv_indptr: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        *,
        q_data_type: torch.dtype,
    ) -> None:
        """Plan for int32 offsets (batch + 1,) of query rows and of keys, which are of the queries' type."""
        self.kernel.require_one_device({"qo_indptr": qo_indptr, "kv_indptr": kv_indptr})
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr.to(self.device), kv_indptr.to(self.device)
        self._cached_q_data_type = self._cached_kv_data_type = q_data_type
        self._planned(qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk)

    def forward_return_lse(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        logits_soft_cap: float | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of `q` (rows, heads, size) to `k` and `v` (keys, KV heads, size), like `q`, and its sums.

        Raises RuntimeError where the tensors do not fit the plan, or the plan is stale.
        """
        plan = self._ready(q, k, v, options)
        self.kernel.require_one_device({"q": q, "k": k, "v": v, "qo_indptr": self._qo_indptr_buf})
        rows = counts(self.kernel, "qo_indptr", self._qo_indptr_buf, len(plan.rows))
        lengths = counts(self.kernel, "kv_indptr", self._kv_indptr_buf, len(plan.rows))
        plan.require_fresh(self.kernel, rows, lengths)
        self.kernel.require(sum(lengths) == len(k), "kv_indptr[-1]", sum(lengths), f"k has {len(k)} rows")
        seen = sights(rows, lengths, causal)
        return attention(q, torch.split(k, lengths), torch.split(v, lengths), rows, seen, sm_scale, logits_soft_cap)


def merge_state(
    v_a: torch.Tensor, s_a: torch.Tensor, v_b: torch.Tensor, s_b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The attention to the keys of both: outputs (rows, heads, size), logarithms to the base 2 (rows, heads), float32.

    A row that has seen nothing on one side is that of the other. Raises RuntimeError for other shapes or types.
    """
    _MERGE.require_shape("v_b", v_b, tuple(v_a.shape), "that of v_a")
    _MERGE.require(v_b.dtype == v_a.dtype, "v_b", v_b.dtype, f"v_a is {v_a.dtype}")
    for name, sums in {"s_a": s_a, "s_b": s_b}.items():
        _MERGE.require_shape(name, sums, tuple(v_a.shape[:2]), "the rows and heads of v_a")
        _MERGE.require(sums.dtype == torch.float32, name, sums.dtype, "it must be torch.float32")
    _MERGE.require_one_device({"v_a": v_a, "s_a": s_a, "v_b": v_b, "s_b": s_b})
    total = torch.logaddexp2(s_a, s_b)
    shares = [torch.exp2(sums - total).nan_to_num(0.0)[..., None] for sums in (s_a, s_b)]
    return (v_a.float() * shares[0] + v_b.float() * shares[1]).to(v_a.dtype), total
