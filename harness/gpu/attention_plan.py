"""FlashInfer's plan of an attention: made on the host before it runs, right for its own lengths alone."""

from itertools import pairwise
from typing import Any, NamedTuple

import torch

from harness.gpu.refusal import Refusal


class Plan(NamedTuple):
    """Query rows and key lengths of each request, and the heads that were planned for."""

    rows: tuple[int, ...]
    lengths: tuple[int, ...]
    heads: int
    kv_heads: int
    size: int
    graph: bool

    def require_fresh(self, kernel: Refusal, rows: list[int], lengths: list[int]) -> None:
        """Refuse to run with `rows` and `lengths` that this plan was not made for; see `left_out` for graphs."""
        kernel.require(list(self.rows) == rows, "the plan", f"for query rows {list(self.rows)}", f"there are {rows}")
        fresh = self.graph or list(self.lengths) == lengths
        rule = f"the buffers have lengths {lengths}: the plan is stale"
        kernel.require(fresh, "the plan", f"for lengths {list(self.lengths)}", rule)

    def left_out(self, lengths: list[int]) -> list[bool]:
        """Which requests of a graph have more keys than were planned, so that nobody knows what comes out of them."""
        # Assumption: requests that pad may have a wrong plan, one for too many keys is harmless, and one for too few
        # spoils its own request alone. Source: sglang plans those that pad by host lengths of 1, where the device has
        # 1 and the block, or 0 (`call_begin_forward` and `_build_draft_indptr_host` of flashinfer_backend.py, 0.5.23).
        # On a GPU: the outputs of live requests show it.
        return [planned < length for planned, length in zip(self.lengths, lengths, strict=True)]

    def require_heads(self, kernel: Refusal, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Refuse queries (rows, heads, size), keys and values (slots, KV heads, size) that do not fit the plan."""
        rows = sum(self.rows)
        shape, rule = f"of shape {list(q.shape)}", f"the plan is for [{rows}, {self.heads}, {self.size}]"
        # More heads than planned are computed wrong in silence, fewer are not (flashinfer_backend.py, 0.5.23).
        fits = q.dim() == 3 and len(q) == rows and q.shape[1] <= self.heads and q.shape[2] == self.size
        kernel.require(fits, "q", shape, rule)
        shape = f"of shape {list(keys.shape)}"
        fits = keys.dim() == 3 and tuple(keys.shape[1:]) == (self.kv_heads, self.size)
        kernel.require(fits, "k", shape, f"the plan is for {self.kv_heads} heads of {self.size}")
        kernel.require_shape("v", values, tuple(keys.shape), "that of k")
        kernel.require(q.shape[1] % self.kv_heads == 0, "q", f"of {q.shape[1]} heads", "KV heads must divide them")


class Planner:
    """What a wrapper calls for its plan, with the positions that sglang's own `fast_prefill_plan` gives arguments."""

    def plan(
        self,
        float_workspace: Any,
        int_workspace: Any,
        pinned_workspace: Any,
        qo_indptr_host: torch.Tensor,
        kv_indptr_host: torch.Tensor,
        kv_lens_host: torch.Tensor,
        total_rows: int,
        batch_size: int,
        num_qo_heads: int,
        num_kv_heads: int,
        page_size: int,
        graph: bool,
        head_dim_qk: int,
        head_dim_vo: int,
        causal: bool,
        window_left: int,
        *split: Any,
    ) -> Plan:
        """The plan for host offsets (batch + 1,) and lengths (batch,), int32; `split` is about speed.

        Positions as in `fast_prefill_plan` of flashinfer_backend.py, 0.5.15 to 0.5.23. Raises RuntimeError where the
        offsets fall or are of another batch, NotImplementedError for windows and pages of more than one slot.
        """
        kernel = Refusal("plan")
        given = {"page_size": page_size, "window_left": window_left, "head_dim_vo": head_dim_vo}
        kernel.require_neutral(given, {"page_size": (1,), "window_left": (-1,), "head_dim_vo": (head_dim_qk,)})
        kernel.require_shape("kv_lens_host", kv_lens_host, (batch_size,), "batch_size")
        rows = counts(kernel, "qo_indptr", qo_indptr_host, batch_size)
        lengths = counts(kernel, "kv_indptr", kv_indptr_host, batch_size)
        told = kv_lens_host.tolist()
        kernel.require(told == lengths, "kv_lens_host", told, f"kv_indptr has lengths {lengths}")
        return Plan(tuple(rows), tuple(lengths), num_qo_heads, num_kv_heads, head_dim_qk, graph)


def counts(kernel: Refusal, name: str, indptr: torch.Tensor, batch: int) -> list[int]:
    """How many each of `batch` requests has by the offsets `indptr`, int32 (batch + 1,); refuses those that fall."""
    kernel.require_int32(name, indptr)
    kernel.require_shape(name, indptr, (batch + 1,), "a request has two offsets")
    offsets = indptr.tolist()
    kernel.require(offsets[0] == 0, name, offsets, "it must begin with 0")
    each = [end - start for start, end in pairwise(offsets)]
    kernel.require(all(count >= 0 for count in each), name, offsets, "it must not fall")
    return each
