"""One call of fused infer attention: its arguments under the names of either version, and what it computes."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import attend_with_sums
from harness.npu.attention_mask import Masking
from harness.npu.packed_keys import PackedKeys
from harness.npu.paged_cache import (
    TILE,
    PagedCache,
    PagesRead,
    Rows,
    in_tiles,
    table_of,
    with_heads_first,
    with_heads_merged,
)
from harness.npu.query_layout import Grouped, QueryArguments, per_group
from harness.npu.rope_parts import RopeParts

# Assumption: pages are as small for several queries of a request as for one. Source: torch_npu 2.14.0 documents
# multiples of 16 for one query, but of 128 for several, and 16 or 128 with rope parts. On a device: verify with pages
# of 16 and 64.
_WIDEST_PAGE = 512
_MOST_HEADS = 256
_WIDEST_HEAD = 512
_WIDEST_VALUE_BESIDE_SINK = 128
#: Head dimensions of values that are narrower than their keys, by those of the keys.
_NARROWER = {192: 128}
_WIDEST_POSITION = 65535
_HEAD_FIRST_LAYOUTS = ("TND", "BNSD")
_CACHES = ("key", "value", "key_rope")
_TILED_AXES = 5


class FusedCall(NamedTuple):
    """The arguments; `tensors` are those given of query, key, value, query_rope and key_rope.

    The rules are those that torch_npu 2.14.0 documents for both versions of the operator; where the emulation has
    another one, it says so.
    """

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
    with_sums: bool = False

    def compute(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Check, announce, read and attend."""
        arguments, tensors = self.arguments, self.tensors
        self._check_tensors()
        if not tensors["query"].numel():
            return tensors["query"].clone(), torch.zeros(1, device="cpu")
        queries = self.query.group("query", tensors["query"])
        parts = queries.groups
        if "query_rope" in tensors:
            ropes = self.query.group("query_rope", tensors["query_rope"])
            self._check_rope(queries)
            parts = [torch.cat(pair, dim=-1) for pair in zip(parts, ropes.groups, strict=True)]
        masking = self.masking
        if "query_rope" not in tensors:
            masking = masking.as_read(self.query.layout, queries.lengths)
        rows = self._packed(queries, masking) if self.block_table is None else self._paged(queries, masking)

        longest = max(queries.lengths, default=0)
        attended, sums = [], []
        for group, found in enumerate(rows):
            key = torch.cat([found["key"], found["key_rope"]], dim=-1) if "key_rope" in found else found["key"]
            visible = masking.visible(group, longest, queries.lengths[group], len(key))
            output, output_sums = attend_with_sums(parts[group], key, found["value"], self.scale, visible, self.sink)
            # Assumption: what stands for the sum over no key is not known, so that nobody may use it; sglang (0.5.23)
            # puts minus infinity in its place. On a device: ask for sums where one of two requests has no keys.
            attended.append(output)
            sums.append(output_sums if len(key) else torch.full_like(output_sums, torch.nan))
        if not self.with_sums:
            # What the device returns in place of softmax sums that were not asked for.
            return queries.join(attended), torch.zeros(1, device="cpu")
        arguments.require_emulated(self.query.layout == "TND", "input_layout", f"{self.query.layout} with softmax sums")
        return queries.join(attended), torch.cat(sums).unsqueeze(-1)

    def _paged(self, queries: Grouped, masking: Masking) -> Iterator[Rows]:
        """The rows of each group out of paged caches."""
        arguments = self.arguments
        aligned = self.block_size > 0 and self.block_size % 16 == 0 and self.block_size <= _WIDEST_PAGE
        rule = f"it must be a multiple of 16 up to {_WIDEST_PAGE}"
        arguments.require(aligned, "block_size", self.block_size, rule)
        caches = {name: self._cache(name, self.tensors[name]) for name in _CACHES if name in self.tensors}
        self._check_caches(caches)
        groups = len(queries.groups)
        assert self.block_table is not None
        table = table_of(arguments, self.block_table, groups)
        lengths = self._kv_lengths(groups)
        read = PagesRead(arguments.operator, self.kv_lengths_name, table, lengths, queries.lengths)
        masking.check(arguments, self.query.layout, queries.lengths, table.shape[1] * self.block_size)

        read.announce(caches.values())
        for page_numbers, length in zip(read.page_numbers(caches["key"]), lengths, strict=True):
            yield {name: cache.rows(page_numbers, length) for name, cache in caches.items()}

    def _packed(self, queries: Grouped, masking: Masking) -> list[Rows]:
        """The rows of each group out of keys and values that are not cached."""
        arguments, layout = self.arguments, self.query.layout
        if layout != "TND":
            raise NotImplementedError(
                f"{arguments.operator}: block_table = None in {layout} is not emulated (see harness/npu)"
            )
        if self.kv_lengths is None:
            raise RuntimeError(f"{arguments.operator}: {self.kv_lengths_name} is None: TND needs it")
        tensors = {name: self.tensors[name] for name in _CACHES if name in self.tensors}
        self._check_dimensions({name: tensor.shape[-1] for name, tensor in tensors.items()})
        ends = arguments.lengths(self.kv_lengths_name, self.kv_lengths)
        rows = PackedKeys(arguments, tensors, self.kv_heads, self.kv_lengths_name, ends).groups(len(queries.groups))
        longest = max((len(found["key"]) for found in rows), default=0)
        masking.check(arguments, layout, queries.lengths, longest)
        return rows

    def _check_rope(self, queries: Grouped) -> None:
        latent = self.block_table is not None
        RopeParts(
            arguments=self.arguments,
            layout=self.query.layout,
            heads=(self.query.heads_name, self.query.heads),
            kv_heads=self.kv_heads,
            dimensions={name: self._head_dimension(name) for name in ("query", "query_rope", "key_rope")},
            query_lengths=queries.lengths,
            block_size=self.block_size if latent else 0,
            tiled=self._tiled,
            mask=self.masking.mask,
            sparse_mode=self.masking.sparse_mode,
        ).check()

    @property
    def _tiled(self) -> bool:
        """Whether caches are in the layout NZ, which has five axes."""
        return self.tensors["key"].dim() == _TILED_AXES

    def _head_dimension(self, name: str) -> int:
        """The dimension of one head of a tensor; H of BSH, and of caches of three axes, holds all heads."""
        tensor = self.tensors[name]
        if tensor.dim() == _TILED_AXES:
            return tensor.shape[2] * tensor.shape[4]
        queries = name.startswith("query")
        merged = self.query.layout == "BSH" if queries else self.block_table is not None and tensor.dim() == 3
        heads = self.query.heads if queries else self.kv_heads
        return tensor.shape[-1] // (heads if merged else 1)

    def _check_tensors(self) -> None:
        arguments, tensors, heads = self.arguments, self.tensors, self.query.heads
        arguments.require_heads((self.query.heads_name, heads), ("num_key_value_heads", self.kv_heads))
        arguments.require_one_dtype(tensors)
        for given, needed in (("query_rope", "key_rope"), ("key_rope", "query_rope")):
            arguments.require(given not in tensors or needed in tensors, needed, None, f"{given} needs it")
        some = tensors["query"].numel() > 0 or self.query.layout != "TND"
        arguments.require_shape(some, "query", tensors["query"], "in TND it must not be empty")
        arguments.require(heads <= _MOST_HEADS, self.query.heads_name, heads, f"it must not exceed {_MOST_HEADS}")
        if self.sink is not None:
            one_each = tuple(self.sink.shape) == (heads,)
            arguments.require_shape(one_each, "learnable_sink", self.sink, f"it must be ({heads},)")
        # Assumption: a tensor that is not contiguous is read as it is. Source: torch_npu 2.14.0 documents that none is
        # supported, and not what happens. On a device: pass a transposed query.

    def _cache(self, name: str, cache: torch.Tensor) -> PagedCache:
        """A cache in one of the layouts in which the device reads pages."""
        require_shape, heads, size = self.arguments.require_shape, self.kv_heads, self.block_size
        if self._tiled:
            return self._tiled_cache(name, cache)
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

    def _tiled_cache(self, name: str, cache: torch.Tensor) -> PagedCache:
        """A cache in the layout NZ, which is documented beside rope parts, and for int8."""
        heads, size = self.kv_heads, self.block_size
        self.arguments.require_emulated(
            "query_rope" in self.tensors, name, "a cache in the layout NZ without rope parts"
        )
        whole = cache.dim() == _TILED_AXES and (cache.shape[1], *cache.shape[3:]) == (heads, size, TILE)
        rule = f"in NZ it must be (pages, num_key_value_heads {heads}, D / {TILE}, block_size {size}, {TILE})"
        self.arguments.require_shape(whole, name, cache, rule)
        return in_tiles(cache)

    def _check_caches(self, caches: dict[str, PagedCache]) -> None:
        pages = len(caches["key"].pages)
        # Assumption: requests that share pages may have more pages together than the cache. Source: torch_npu 2.14.0
        # documents that the cache has no fewer. On a device: two requests over one page of a cache of one.
        for name, cache in caches.items():
            self.arguments.require_shape(len(cache.pages) == pages, name, self.tensors[name], f"key has {pages} pages")
        self._check_dimensions({name: cache.head_dimension for name, cache in caches.items()})

    def _check_dimensions(self, dimensions: dict[str, int]) -> None:
        """Refuse head dimensions of keys and values that are not read, and queries that do not go with them."""
        width, tensors = dimensions["key"], self.tensors
        # Assumption: values may be narrower where keys are of 192 and values of 128, over paged caches and in every
        # layout; sglang does both. Source: torch_npu 2.14.0 documents it for TND without pages. On a device: decode and
        # verify with such heads.
        alike = dimensions["value"] in (width, _NARROWER.get(width))
        self.arguments.require_shape(alike, "value", tensors["value"], f"key has head dimension {width}")
        aligned = width % 16 == 0 and width <= _WIDEST_HEAD
        rule = f"its head dimension, {width}, must be a multiple of 16 up to {_WIDEST_HEAD}"
        self.arguments.require_shape(aligned, "key", tensors["key"], rule)
        beside = self.sink is None or dimensions["value"] <= _WIDEST_VALUE_BESIDE_SINK
        rule = f"beside learnable_sink its head dimension must not exceed {_WIDEST_VALUE_BESIDE_SINK}"
        self.arguments.require_shape(beside, "value", tensors["value"], rule)
        for name, cached in (("query", "key"), ("query_rope", "key_rope")):
            if cached in dimensions:
                width, dimension = self._head_dimension(name), dimensions[cached]
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
