"""The Triton kernels of sgl_kernel_npu for attention with sinks, which sglang uses without ASCEND_USE_FIA.

Facts are from `sgl_kernel_npu/attention/sinks_attention.py`. Assumption: the version that takes the new tokens of each
request is meant, as sglang 0.5.15 to 0.5.23 calls it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import attend, visible_in_band
from harness.npu.boundary import AttentionRead
from harness.npu.overloads import Operator, Traits
from harness.npu.paged_cache import PagesRead, table_of, with_heads_last
from harness.npu.registry import emulates

_MODULE = "sgl_kernel_npu.attention.sinks_attention"
_EVERYTHING = -1


def _kernel(compute: Callable[..., Any]) -> Operator:
    """Register a function as the kernel of its name."""
    return emulates(f"{_MODULE}.{compute.__name__}")(Operator(compute, Traits(announces=AttentionRead)))


class _SinkCall(NamedTuple):
    """The arguments that both kernels have."""

    arguments: Arguments
    query: torch.Tensor
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    sinks: torch.Tensor | None
    block_tables: torch.Tensor
    context_lens: torch.Tensor
    scale: float
    sliding_window_size: int
    heads: int
    kv_heads: int

    def compute(self, query_lengths: tuple[int, ...]) -> torch.Tensor:
        """Announce, read and attend; each query sees the last `sliding_window_size` positions, its own included."""
        arguments = self.arguments
        if self.sinks is None:
            raise RuntimeError(f"{arguments.operator}: sinks is None: the kernel loads one per head")
        arguments.require_heads(("q_head_num", self.heads), ("k_head_num", self.kv_heads))
        one_each = tuple(self.sinks.shape) == (self.heads,)
        arguments.require_shape(one_each, "sinks", self.sinks, f"it must be ({self.heads},)")
        for name, cache in (("k_cache", self.key_cache), ("v_cache", self.value_cache)):
            whole = cache.dim() == 4 and cache.shape[2] == self.kv_heads
            arguments.require_shape(whole, name, cache, f"it must be (pages, page size, k_head_num {self.kv_heads}, D)")
        key, value = with_heads_last(self.key_cache), with_heads_last(self.value_cache)
        groups = len(query_lengths)
        table = table_of(arguments, self.block_tables, groups)
        # The kernel goes through as many pages as the table has, whatever the length.
        capacity = table.shape[1] * self.key_cache.shape[1]
        told = arguments.lengths("context_lens", self.context_lens)
        arguments.require(len(told) == groups, "context_lens", list(told), f"there must be {groups} lengths")
        lengths = tuple(min(length, capacity) for length in told)
        read = PagesRead(arguments.operator, "context_lens", table, lengths, query_lengths)
        read.announce((key, value))

        query = self.query.view(len(self.query), self.heads, -1)
        window = self.sliding_window_size
        before = None if window == _EVERYTHING else window - 1
        attended, start = [], 0
        for group, page_numbers in enumerate(read.page_numbers(key)):
            stop = start + query_lengths[group]
            keys, values = key.rows(page_numbers, lengths[group]), value.rows(page_numbers, lengths[group])
            offset = told[group] - query_lengths[group]
            visible = visible_in_band(query_lengths[group], lengths[group], offset, before=before)
            attended.append(attend(query[start:stop], keys, values, self.scale, visible, self.sinks))
            start = stop
        return torch.cat(attended).flatten(1)


@_kernel
def attention_sinks_triton(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    sinks: torch.Tensor | None,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    sliding_window_size: int,
    q_head_num: int,
    k_head_num: int,
) -> torch.Tensor:
    """Attention of one query per request."""
    return _SinkCall(
        Arguments("attention_sinks_triton"),
        query,
        k_cache,
        v_cache,
        sinks,
        block_tables,
        context_lens,
        scale,
        sliding_window_size,
        q_head_num,
        k_head_num,
    ).compute((1,) * len(query))


@_kernel
def attention_sinks_prefill_triton(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    sinks: torch.Tensor | None,
    seq_lens: torch.Tensor,
    block_tables: torch.Tensor,
    context_lens: torch.Tensor,
    scale: float,
    sliding_window_size: int,
    q_head_num: int,
    k_head_num: int,
) -> torch.Tensor:
    """Attention of each request's `seq_lens` last positions over all of its own."""
    arguments = Arguments("attention_sinks_prefill_triton")
    lengths = arguments.lengths("seq_lens", seq_lens)
    complete = sum(lengths) == len(query)
    arguments.require(complete, "seq_lens", list(lengths), f"the sum must be query's tokens, {len(query)}")
    return _SinkCall(
        arguments,
        query,
        k_cache,
        v_cache,
        sinks,
        block_tables,
        context_lens,
        scale,
        sliding_window_size,
        q_head_num,
        k_head_num,
    ).compute(lengths)
