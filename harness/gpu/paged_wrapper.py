"""FlashInfer's wrappers over a paged cache: the prefill's, which takes masks, and the decode's."""

from typing import Any

import torch

from harness.gpu import custom_mask as masks
from harness.gpu.attention_plan import Plan, counts
from harness.gpu.attention_wrapper import AttentionWrapper, attention, sights


class PagedWrapper(AttentionWrapper):
    """A wrapper that reads offsets and slots when it runs: in a graph from the buffers it was made with.

    Elsewhere from the tensors of its plan themselves, where they lie on the same device, as FlashInfer does: who writes
    to them in between makes the plan stale.
    """

    _paged_kv_indptr_buf: torch.Tensor
    _paged_kv_indices_buf: torch.Tensor
    _paged_kv_last_page_len_buf: torch.Tensor

    def _hold(self, indptr: torch.Tensor, indices: torch.Tensor, last_page_len: torch.Tensor) -> None:
        """Take what a run is to read: in a graph into the buffers, which must be as large."""
        for name, tensor in {"kv_indptr": indptr, "kv_indices": indices, "last_page_len": last_page_len}.items():
            self.kernel.require_int32(name, tensor)
        if not self.is_cuda_graph_enabled:
            self._paged_kv_indptr_buf = indptr.to(self.device)
            self._paged_kv_indices_buf = indices.to(self.device)
            self._paged_kv_last_page_len_buf = last_page_len.to(self.device)
            return
        self._require_room(len(last_page_len), indices)
        self._paged_kv_indptr_buf.copy_(indptr)
        self._paged_kv_indices_buf[: len(indices)].copy_(indices)
        self._paged_kv_last_page_len_buf.copy_(last_page_len)

    def _require_room(self, batch: int, indices: torch.Tensor) -> None:
        """Refuse a batch that a graph was not made for, and more slots than its buffer has."""
        fixed, room = len(self._paged_kv_last_page_len_buf), len(self._paged_kv_indices_buf)
        self.kernel.require(batch == fixed, "last_page_len", f"of {batch} requests", f"the graph has {fixed}")
        rule = f"the buffer of the graph has {room}"
        self.kernel.require(len(indices) <= room, "kv_indices", f"of {len(indices)} slots", rule)

    def _slots(self, plan: Plan, rows: list[int], pool: int) -> list[torch.Tensor]:
        """The slots of each request's keys, all of them in a cache of `pool` slots; refuses a stale plan."""
        indices = self._paged_kv_indices_buf
        lengths = counts(self.kernel, "kv_indptr", self._paged_kv_indptr_buf, len(plan.lengths))
        plan.require_fresh(self.kernel, rows, lengths)
        total = sum(lengths)
        self.kernel.require(total <= len(indices), "kv_indptr[-1]", total, f"kv_indices has {len(indices)} slots")
        for place, slot in enumerate(indices[:total].tolist()):
            rule = f"the cache has slots 0 to {pool - 1}"
            self.kernel.require(0 <= slot < pool, f"kv_indices[{place}]", slot, rule)
        last = self._paged_kv_last_page_len_buf.tolist()
        self.kernel.require(last == [1] * len(lengths), "last_page_len", last, "a page has one slot")
        return list(torch.split(indices[:total].long(), lengths))

    def _attention(
        self,
        q: torch.Tensor,
        cache: tuple[torch.Tensor, torch.Tensor],
        rows: list[int],
        causal: bool,
        sm_scale: float | None,
        soft_cap: float | None,
        options: dict[str, Any],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See `attention`; keys and values are the cache's (slots, KV heads, size)."""
        keys, values = cache
        plan = self._ready(q, keys, values, options)
        buffers = {"kv_indptr": self._paged_kv_indptr_buf, "kv_indices": self._paged_kv_indices_buf}
        self.kernel.require_one_device({"q": q, "k": keys, "v": values, **buffers, "mask": self._custom_mask_buf})
        slots = self._slots(plan, rows, len(keys))
        seen = self._seen(rows, [len(own) for own in slots], causal)
        own_keys, own_values = ([whole[own] for own in slots] for whole in (keys, values))
        output, sums = attention(q, own_keys, own_values, rows, seen, sm_scale, soft_cap)
        for own, spoiled in zip(torch.split(output, rows), plan.left_out([len(own) for own in slots]), strict=True):
            if spoiled:
                own.fill_(float("nan"))
        return output, sums

    def _seen(self, rows: list[int], lengths: list[int], causal: bool) -> list[torch.Tensor]:
        return sights(rows, lengths, causal)


class BatchPrefillWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of any number of query rows of each request to its slots of the cache."""

    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str,
    ) -> None:
        """With `use_cuda_graph` the buffers are read at every run: int32, the mask's uint8.

        Those of offsets are (batch + 1,), of slots as long as they can get, of the last page (batch,).
        """
        super().__init__(workspace, kv_layout, use_cuda_graph=use_cuda_graph, backend=backend)
        if qo_indptr_buf is not None and paged_kv_indptr_buf is not None:
            self._qo_indptr_buf, self._paged_kv_indptr_buf = qo_indptr_buf, paged_kv_indptr_buf
        if paged_kv_indices_buf is not None and paged_kv_last_page_len_buf is not None:
            self._paged_kv_indices_buf = paged_kv_indices_buf
            self._paged_kv_last_page_len_buf = paged_kv_last_page_len_buf
        self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf
        self._max_total_num_rows: int | None = None

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
        custom_mask: torch.Tensor | None = None,
        non_blocking: bool = True,
        fixed_split_size: int | None = None,
        **options: Any,
    ) -> None:
        """Plan for int32 offsets (batch + 1,), slots and last pages (batch,), and a flat `custom_mask` (see `pack`).

        Raises RuntimeError where an argument is wrong, NotImplementedError for what is not emulated.
        """
        neutral: dict[str, tuple[Any, ...]] = {"token_pos_in_items_len": (0,), "window_left": (-1,)}
        neutral |= dict.fromkeys(("prefix_len_ptr", "token_pos_in_items_ptr", "max_item_len_ptr"), (None,))
        self.kernel.require_neutral(options, neutral)
        tensors = {"kv_indptr": paged_kv_indptr, "qo_indptr": qo_indptr, "kv_indices": paged_kv_indices}
        self.kernel.require_one_device(tensors | {"custom_mask": custom_mask})
        self._hold(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        if self.is_cuda_graph_enabled:
            self._qo_indptr_buf.copy_(qo_indptr)
        else:
            self._qo_indptr_buf = qo_indptr.to(self.device)
        self._cached_q_data_type, self._cached_kv_data_type = q_data_type, kv_data_type
        plan = self._planned(qo_indptr, paged_kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, page_size)
        self._mask(custom_mask, plan)

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        causal: bool = False,
        sm_scale: float | None = None,
        logits_soft_cap: float | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of `q` (rows, heads, size) to a cache of (slots, KV heads, size), like `q`, and its sums.

        A mask of the plan, or in a graph a buffer for one, has the say over `causal`. Raises RuntimeError where what is
        read does not fit the plan or leads out of the cache.
        """
        if self._plan_info is None:
            rows = []
        else:
            rows = counts(self.kernel, "qo_indptr", self._qo_indptr_buf, len(self._plan_info.rows))
        return self._attention(q, paged_kv_cache, rows, causal, sm_scale, logits_soft_cap, options)

    def _mask(self, custom_mask: torch.Tensor | None, plan: Plan) -> None:
        if custom_mask is None:
            if not self.is_cuda_graph_enabled:
                self._custom_mask_buf = self._mask_indptr_buf = None
            return
        packed, indptr = masks.pack(self.kernel, custom_mask, list(plan.rows), list(plan.lengths))
        if not self.is_cuda_graph_enabled:
            self._custom_mask_buf, self._mask_indptr_buf = packed, indptr
            return
        room = 0 if self._custom_mask_buf is None else len(self._custom_mask_buf)
        rule = f"the graph was made with a buffer of {room} bytes for it"
        self.kernel.require(len(packed) <= room, "custom_mask", f"of {len(packed)} bytes", rule)
        if self._custom_mask_buf is not None and self._mask_indptr_buf is not None:
            self._custom_mask_buf[: len(packed)].copy_(packed)
            self._mask_indptr_buf.copy_(indptr)

    def _seen(self, rows: list[int], lengths: list[int], causal: bool) -> list[torch.Tensor]:
        if self._custom_mask_buf is None or self._mask_indptr_buf is None:
            return super()._seen(rows, lengths, causal)
        return masks.unpack(self.kernel, self._custom_mask_buf, self._mask_indptr_buf, rows, lengths)


class BatchDecodeWithPagedKVCacheWrapper(PagedWrapper):
    """Attention of one query row of each request to its slots of the cache."""

    def __init__(
        self,
        workspace: torch.Tensor,
        kv_layout: str,
        *,
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str,
    ) -> None:
        """See the prefill's; `use_tensor_cores` is about speed."""
        super().__init__(workspace, kv_layout, use_cuda_graph=use_cuda_graph, backend=backend)
        if paged_kv_indptr_buffer is not None and paged_kv_indices_buffer is not None:
            self._paged_kv_indptr_buf, self._paged_kv_indices_buf = paged_kv_indptr_buffer, paged_kv_indices_buffer
        if paged_kv_last_page_len_buffer is not None:
            self._paged_kv_last_page_len_buf = paged_kv_last_page_len_buffer

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        **options: Any,
    ) -> None:
        """Plan for int32 offsets (batch + 1,), slots and last pages (batch,); `options` as in `fast_decode_plan`."""
        self._hold(indptr, indices, last_page_len)
        fast_decode_plan(
            self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **options
        )

    def forward_return_lse(
        self,
        q: torch.Tensor,
        paged_kv_cache: tuple[torch.Tensor, torch.Tensor],
        *,
        sm_scale: float | None = None,
        logits_soft_cap: float | None = None,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention of `q` (batch, heads, size) to a cache of (slots, KV heads, size), like `q`, and its sums."""
        rows = [] if self._plan_info is None else list(self._plan_info.rows)
        return self._attention(q, paged_kv_cache, rows, False, sm_scale, logits_soft_cap, options)


def fast_decode_plan(
    wrapper: BatchDecodeWithPagedKVCacheWrapper,
    indptr: torch.Tensor,
    indices: torch.Tensor,
    last_page_len: torch.Tensor,
    num_qo_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    *,
    data_type: torch.dtype,
    q_data_type: torch.dtype,
    non_blocking: bool = True,
    fixed_split_size: int | None = None,
    disable_split_kv: bool = False,
    global_override_indptr_cpu: torch.Tensor | None = None,
) -> None:
    """Plan a decode by host offsets, int32 (batch + 1,); without them by `indptr`.

    It does not write to the buffers of a graph: who calls it has done so (FlashInfer's decode.py). Raises RuntimeError
    where the batch is not that of the graph.
    """
    if wrapper.is_cuda_graph_enabled:
        wrapper._require_room(len(last_page_len), indices)
    host = indptr if global_override_indptr_cpu is None else global_override_indptr_cpu
    wrapper._cached_q_data_type, wrapper._cached_kv_data_type = q_data_type, data_type
    rows = torch.arange(len(last_page_len) + 1, dtype=torch.int32)
    wrapper._planned(rows, host, num_qo_heads, num_kv_heads, head_dim, page_size)
