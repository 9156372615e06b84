"""The ATB attention operators over paged caches, which sglang uses without ASCEND_USE_FIA."""

from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import attend, visible_in_band
from harness.npu.attention_mask import is_causal
from harness.npu.boundary import AttentionRead
from harness.npu.overloads import operator
from harness.npu.paged_cache import PagedCache, PagesRead, table_of, with_heads_last

_WIDEST_PAGE = 128
_WIDEST_HEAD = 256
# Assumption: where one latent head is keys and values, it may be as wide as DeepSeek's, 512 with 64 for rope.
_WIDEST_LATENT = 576


class _PagedCall(NamedTuple):
    """The arguments that both operators have."""

    arguments: Arguments
    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_table: torch.Tensor
    context_lens: torch.Tensor
    scale_value: float
    num_heads: int
    num_kv_heads: int
    out: torch.Tensor
    widest_head: int = _WIDEST_HEAD

    def compute(self, query_lengths: tuple[int, ...]) -> None:
        """Check, announce, read and attend; a group's last query is aligned to its last position."""
        arguments = self.arguments
        arguments.require_heads(("num_heads", self.num_heads), ("num_kv_heads", self.num_kv_heads))
        arguments.require_one_dtype(
            {"query": self.query, "key_cache": self.key_cache, "value_cache": self.value_cache, "out": self.out}
        )
        key, value = self._cache("key_cache", self.key_cache), self._cache("value_cache", self.value_cache)
        paged_alike = key.pages.shape[:2] == value.pages.shape[:2]
        arguments.require_shape(paged_alike, "value_cache", self.value_cache, "its pages must be those of key_cache")
        query = self._by_head("query", self.query, key.head_dimension)
        out = self._by_head("out", self.out, value.head_dimension)
        groups = len(query_lengths)
        lengths = arguments.lengths_in("context_lens", self.context_lens)
        one_each = f"there must be {groups} lengths, one per group of queries"
        arguments.require(len(lengths) == groups, "context_lens", list(lengths), one_each)
        table = table_of(arguments, self.block_table, groups)

        read = PagesRead(arguments.operator, "context_lens", table, lengths, query_lengths)
        read.announce((key, value))
        start = 0
        for page_numbers, queries, positions in zip(read.page_numbers(key), query_lengths, lengths, strict=True):
            stop = start + queries
            visible = visible_in_band(queries, positions, offset=positions - queries)
            keys, values = key.rows(page_numbers, positions), value.rows(page_numbers, positions)
            out[start:stop] = attend(query[start:stop], keys, values, self.scale_value, visible)
            start = stop

    def _cache(self, name: str, cache: torch.Tensor) -> PagedCache:
        require_shape, heads = self.arguments.require_shape, self.num_kv_heads
        whole = cache.dim() == 4 and cache.shape[2] == heads
        require_shape(whole, name, cache, f"it must be (pages, page size, num_kv_heads {heads}, D)")
        aligned = cache.shape[1] % 16 == 0 and 0 < cache.shape[1] <= _WIDEST_PAGE
        require_shape(aligned, name, cache, f"the page size must be a multiple of 16 up to {_WIDEST_PAGE}")
        require_shape(cache.shape[3] <= self.widest_head, name, cache, f"D must not exceed {self.widest_head}")
        return with_heads_last(cache)

    def _by_head(self, name: str, tensor: torch.Tensor, dimension: int) -> torch.Tensor:
        """A tensor of (token, head * dimension), or of both apart, as the latter; as a view, to be written to."""
        tokens, heads = len(self.query), self.num_heads
        whole = tuple(tensor.shape) in ((tokens, heads * dimension), (tokens, heads, dimension))
        self.arguments.require_shape(whole, name, tensor, f"it must be ({tokens}, num_heads {heads} * D {dimension})")
        return tensor.view(tokens, heads, dimension)


@operator(announces=AttentionRead, writes=True, host=("seq_len", "context_lens"))
def _npu_flash_attention_qlens(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_table: torch.Tensor,
    mask: torch.Tensor,
    seq_len: torch.Tensor,
    context_lens: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    out: torch.Tensor,
) -> None:
    """Write to `out` the causal attention of each request's `seq_len` last positions over all of its own."""
    arguments = Arguments("_npu_flash_attention_qlens")
    square = mask.dim() == 2 and mask.shape[0] == mask.shape[1]
    arguments.require_shape(square, "mask", mask, "it must be square")
    # Assumption: a causal mask of any size stands for causality aligned to the last position. On a device: extend
    # behind a prefix, against dense attention.
    arguments.require_emulated(is_causal(mask), "mask", "one that is not causal")
    lengths = arguments.lengths_in("seq_len", seq_len)
    complete = sum(lengths) == len(query)
    arguments.require(complete, "seq_len", list(lengths), f"the sum must be query's tokens, {len(query)}")
    _PagedCall(
        arguments, query, key_cache, value_cache, block_table, context_lens, scale_value, num_heads, num_kv_heads, out
    ).compute(lengths)


@operator(neutral={"workspace": None}, announces=AttentionRead, writes=True, host=("context_lens",))
def _npu_paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
) -> None:
    """Write to `out` the attention of one query per request over all of its positions."""
    arguments = Arguments("_npu_paged_attention")
    _PagedCall(
        arguments, query, key_cache, value_cache, block_table, context_lens, scale_value, num_heads, num_kv_heads, out
    ).compute((1,) * len(query))


@operator(announces=AttentionRead, writes=True, host=("context_lens",))
def _npu_paged_attention_mla(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    mla_vheadsize: int,
    out: torch.Tensor,
) -> None:
    """Write to `out` the attention of one query per request, whose values are the first part of each key."""
    arguments = Arguments("_npu_paged_attention_mla")
    arguments.require(num_kv_heads == 1, "num_kv_heads", num_kv_heads, "a latent cache has 1 head")
    within = 0 < mla_vheadsize <= key_cache.shape[-1]
    rule = f"it must be in 1 to D of key_cache, {key_cache.shape[-1]}"
    arguments.require(within, "mla_vheadsize", mla_vheadsize, rule)
    _PagedCall(
        arguments,
        query,
        key_cache,
        key_cache[..., :mla_vheadsize],
        block_table,
        context_lens,
        scale_value,
        num_heads,
        num_kv_heads,
        out,
        widest_head=_WIDEST_LATENT,
    ).compute((1,) * len(query))
