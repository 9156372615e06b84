"""One call of fused infer attention: its arguments under the names of either version, and what it computes."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import attend
from harness.npu.attention_mask import Masking
from harness.npu.paged_cache import PagedCache, PagesRead, table_of, with_heads_first, with_heads_merged
from harness.npu.query_layout import QueryArguments, per_group

_WIDEST_PAGE = 512
_WIDEST_POSITION = 65535
_HEAD_FIRST_LAYOUTS = ("TND", "BNSD")
_CACHES = ("key", "value", "key_rope")


class FusedCall(NamedTuple):
    """The arguments; `tensors` are those given of query, key, value, query_rope and key_rope."""

    arguments: Arguments
    query: QueryArguments
    tensors: dict[str, torch.Tensor]
    block_table: torch.Tensor | None
    block_size: int
    kv_heads: int
    kv_lengths_name: str
    kv_lengths: Iterable[Any] | None
    masking: Masking
    scale: float
    sink: torch.Tensor | None = None

    def compute(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Check, announce, read and attend."""
        arguments, tensors = self.arguments, self.tensors
        if self.block_table is None:
            raise NotImplementedError(f"{arguments.operator}: block_table = None is not emulated: caches must be paged")
        self._check_tensors()
        queries = self.query.group("query", tensors["query"])
        caches = {name: self._cache(name, tensors[name]) for name in _CACHES if name in tensors}
        self._check_caches(caches)
        parts = queries.groups
        if "query_rope" in tensors:
            ropes = self.query.group("query_rope", tensors["query_rope"]).groups
            parts = [torch.cat(pair, dim=-1) for pair in zip(parts, ropes, strict=True)]
        table = table_of(arguments, self.block_table, len(parts))
        read = PagesRead(arguments.operator, self.kv_lengths_name, table, self._kv_lengths(len(parts)), queries.lengths)
        self.masking.check(arguments, self.query.layout, queries.lengths, table.shape[1] * self.block_size)

        read.announce(caches.values())
        longest = max(queries.lengths, default=0)
        attended = []
        for group, page_numbers in enumerate(read.page_numbers(caches["key"])):
            positions = read.kv_lengths[group]
            rows = {name: cache.rows(page_numbers, positions) for name, cache in caches.items()}
            key = torch.cat([rows["key"], rows["key_rope"]], dim=-1) if "key_rope" in rows else rows["key"]
            visible = self.masking.visible(group, longest, queries.lengths[group], positions)
            attended.append(attend(parts[group], key, rows["value"], self.scale, visible, self.sink))
        # What the device returns in place of softmax sums that were not asked for.
        return queries.join(attended), torch.zeros(1, device="cpu")

    def _check_tensors(self) -> None:
        arguments, tensors, heads = self.arguments, self.tensors, self.query.heads
        arguments.require_heads((self.query.heads_name, heads), ("num_key_value_heads", self.kv_heads))
        arguments.require_one_dtype(tensors)
        for given, needed in (("query_rope", "key_rope"), ("key_rope", "query_rope")):
            arguments.require(given not in tensors or needed in tensors, needed, None, f"{given} needs it")
        arguments.require_shape(tensors["query"].numel() > 0, "query", tensors["query"], "it must not be empty")
        aligned = self.block_size > 0 and self.block_size % 16 == 0 and self.block_size <= _WIDEST_PAGE
        rule = f"it must be a multiple of 16 up to {_WIDEST_PAGE}"
        arguments.require(aligned, "block_size", self.block_size, rule)
        if self.sink is not None:
            one_each = tuple(self.sink.shape) == (heads,)
            arguments.require_shape(one_each, "learnable_sink", self.sink, f"it must be ({heads},)")

    def _cache(self, name: str, cache: torch.Tensor) -> PagedCache:
        """A cache in one of the two layouts in which the device reads pages."""
        require_shape, heads, size = self.arguments.require_shape, self.kv_heads, self.block_size
        self.arguments.require_emulated(cache.dim() != 5, name, "a cache in the layout NZ")
        if cache.dim() == 4:
            layout = self.query.layout
            require_shape(layout in _HEAD_FIRST_LAYOUTS, name, cache, f"{layout} reads (pages, block_size, H)")
            whole = tuple(cache.shape[1:3]) == (heads, size)
            rule = f"it must be (pages, num_key_value_heads {heads}, block_size {size}, D)"
            require_shape(whole, name, cache, rule)
            return with_heads_first(cache)
        whole = cache.dim() == 3 and cache.shape[1] == size and cache.shape[2] % heads == 0
        rule = f"it must be (pages, block_size {size}, num_key_value_heads {heads} * D)"
        require_shape(whole, name, cache, rule)
        require_shape(cache.shape[2] <= _WIDEST_POSITION, name, cache, f"H must not exceed {_WIDEST_POSITION}")
        return with_heads_merged(cache, heads)

    def _check_caches(self, caches: dict[str, PagedCache]) -> None:
        pages = len(caches["key"].pages)
        for name, cache in caches.items():
            self.arguments.require_shape(len(cache.pages) == pages, name, self.tensors[name], f"key has {pages} pages")
        for name, cached in (("query", "key"), ("query_rope", "key_rope")):
            if cached in caches:
                query, dimension = self.tensors[name], caches[cached].head_dimension
                width = query.shape[-1] // (self.query.heads if self.query.layout == "BSH" else 1)
                rule = f"{cached} has head dimension {dimension}"
                self.arguments.require(width == dimension, name, f"of head dimension {width}", rule)

    def _kv_lengths(self, groups: int) -> tuple[int, ...]:
        arguments, name = self.arguments, self.kv_lengths_name
        if self.kv_lengths is None:
            raise RuntimeError(f"{arguments.operator}: {name} is None: paged caches need it")
        lengths = arguments.lengths(name, self.kv_lengths)
        if self.query.layout != "TND":
            return per_group(arguments, name, lengths, groups)
        rule = f"there must be {groups} lengths, one per group of queries"
        arguments.require(len(lengths) == groups, name, list(lengths), rule)
        return lengths
