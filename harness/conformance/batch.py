"""Requests over one paged cache, made from a seed, and their attention in float64.

The reference shares nothing with the emulation: it looks every position up on its own, in numpy.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]
#: Whether a query sees a position: query and position count within their request, then its queries and positions.
Sees = Callable[[int, int, int, int], bool]

#: What sparse modes take as a mask: True hides.
CAUSAL = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
SCALE = 0.125


class Batch(NamedTuple):
    """Requests over one cache, whose pages lie in no order.

    `query` is (query tokens, heads, D), `key` and `value` are (pages, page size, KV heads, D), `table` is int32 of
    (requests, pages). In the table, what follows a request's pages names a page that is not its own, as stale tables
    do.
    """

    page_size: int
    heads: int
    kv_heads: int
    query_lengths: tuple[int, ...]
    kv_lengths: tuple[int, ...]
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    table: torch.Tensor

    @property
    def ends(self) -> list[int]:
        """Cumulative query lengths."""
        return [int(end) for end in np.cumsum(self.query_lengths)]

    def merged(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, and caches of (pages, page size, KV heads * D)."""
        return self.query, self.key.flatten(2), self.value.flatten(2)

    def paged(self) -> dict[str, Any]:
        """What tells fused operators of pages."""
        return {"block_table": self.table, "block_size": self.page_size}

    def fused(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the fused operator in TND, and causal."""
        query, key, value = self.merged()
        arguments = {
            **self.paged(),
            "query": query,
            "key": key,
            "value": value,
            "num_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "input_layout": "TND",
            "atten_mask": CAUSAL,
            "scale": SCALE,
            "actual_seq_lengths": self.ends,
            "actual_seq_lengths_kv": list(self.kv_lengths),
            "sparse_mode": 3,
        }
        return arguments | changes

    def padded(self, **changes: Any) -> dict[str, Any]:
        """Arguments in BSH for groups of one size, where everything is seen."""
        size = len(self.kv_lengths), self.query_lengths[0], self.heads * self.query.shape[2]
        whole = {"query": self.query.reshape(size), "input_layout": "BSH", "atten_mask": None, "sparse_mode": 0}
        return self.fused(**whole) | {"actual_seq_lengths": None} | changes

    def qlens(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the operator for extending; its mask is of the size and the values that sglang has."""
        arguments = {
            "query": self.query.flatten(1),
            "key_cache": self.key,
            "value_cache": self.value,
            "mask": torch.full((128, 128), float("-inf"), dtype=self.query.dtype).triu(1),
            "block_table": self.table,
            "seq_len": torch.tensor(self.query_lengths, dtype=torch.int32),
            "context_lens": torch.tensor(self.kv_lengths, dtype=torch.int32),
            "scale_value": SCALE,
            "num_heads": self.heads,
            "num_kv_heads": self.kv_heads,
            "out": torch.empty_like(self.query.flatten(1)),
        }
        return arguments | changes

    def single(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the operator for decoding."""
        arguments = self.qlens(query=self.query, out=torch.empty_like(self.query)) | changes
        return {name: value for name, value in arguments.items() if name not in ("mask", "seq_len")}

    def reference(self, sees: Sees, sinks: Sequence[float] | None = None) -> Floats:
        """Attention of (query tokens, heads, D of the values), one query and one head at a time."""
        query, key, value = (tensor.double().numpy() for tensor in (self.query, self.key, self.value))
        result: Floats = np.zeros((*query.shape[:2], value.shape[3]))
        token = 0
        for row, (queries, length) in enumerate(zip(self.query_lengths, self.kv_lengths, strict=True)):
            for index in range(queries):
                seen = [position for position in range(length) if sees(index, position, queries, length)]
                places = [(int(self.table[row, n // self.page_size]), n % self.page_size) for n in seen]
                for head in range(self.heads):
                    kv_head = head * self.kv_heads // self.heads
                    scores = np.array([key[place][kv_head] @ query[token, head] * SCALE for place in places])
                    weights = np.exp(scores)
                    total = weights.sum() + (np.exp(sinks[head]) if sinks else 0.0)
                    for weight, place in zip(weights, places, strict=True):
                        result[token, head] += weight / total * value[place][kv_head]
                token += 1
        return result


def make_batch(
    query_lengths: tuple[int, ...],
    kv_lengths: tuple[int, ...],
    page_size: int,
    heads: int = 4,
    kv_heads: int = 2,
    *,
    dtype: torch.dtype,
    dimension: int,
    around: float,
) -> Batch:
    """A batch of random numbers, always the same; what no request has written, such as page 0, is `around`."""
    random = np.random.default_rng(7)
    columns = max(1, *(-(-length // page_size) for length in kv_lengths)) + 1
    pages = columns * len(kv_lengths) + 3
    order = 1 + random.permutation(pages - 1)
    table = np.full((len(kv_lengths), columns), order[0], dtype=np.int32)
    caches = [np.full((pages, page_size, kv_heads, dimension), around) for _ in range(2)]
    taken = 1
    for row, length in enumerate(kv_lengths):
        for start in range(0, length, page_size):
            page = table[row, start // page_size] = order[taken]
            taken += 1
            for cache in caches:
                held = min(page_size, length - start)
                cache[page, :held] = random.standard_normal((held, kv_heads, dimension))
    query = random.standard_normal((sum(query_lengths), heads, dimension))
    queries, keys, values = (torch.from_numpy(array).to(dtype) for array in (query, *caches))
    return Batch(page_size, heads, kv_heads, query_lengths, kv_lengths, queries, keys, values, torch.from_numpy(table))


def everything(query: int, position: int, queries: int, positions: int) -> bool:
    """Every query sees every position of its request."""
    return True


def causally(query: int, position: int, queries: int, positions: int) -> bool:
    """A query sees what comes before it and itself, the last query standing at the last position."""
    return position <= positions - queries + query
