"""A paged KV cache as operators get it, and the pages that one operator reads of it."""

from collections.abc import Iterable
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from harness.npu import fault
from harness.npu.arguments import Arguments
from harness.npu.boundary import AttentionRead, announce, announced

#: Keys, values and rope parts of one group, each with axes (position, head, dimension).
Rows = dict[str, torch.Tensor]

# Assumption: a tile of the layout NZ has 16 numbers in float32 and float64, too. Source: torch_npu 2.14.0 documents 16
# for float16 and bfloat16, and 32 for int8. On a device: nothing, cases there use half precision.
TILE = 16


class PagedCache(NamedTuple):
    """Keys or values as a view with axes (page, position in page, head, dimension); the dimension may have several."""

    pages: torch.Tensor
    address: int

    @property
    def head_dimension(self) -> int:
        """How many numbers one head has in one position."""
        return prod(self.pages.shape[3:])

    def rows(self, page_numbers: npt.NDArray[np.int64], length: int) -> torch.Tensor:
        """The first `length` positions of the given pages, one after another."""
        found = self.pages[torch.from_numpy(page_numbers)]
        return found.flatten(0, 1).flatten(2)[:length]


def with_heads_merged(cache: torch.Tensor, heads: int) -> PagedCache:
    """A cache laid out as (page, position, head * dimension)."""
    pages, page_size, width = cache.shape
    return PagedCache(cache.view(pages, page_size, heads, width // heads), cache.data_ptr())


def with_heads_first(cache: torch.Tensor) -> PagedCache:
    """A cache laid out as (page, head, position, dimension)."""
    return PagedCache(cache.transpose(1, 2), cache.data_ptr())


def in_tiles(cache: torch.Tensor) -> PagedCache:
    """A cache in the layout NZ: (page, head, tile, position, number of the tile)."""
    return PagedCache(cache.permute(0, 3, 1, 2, 4), cache.data_ptr())


def with_heads_last(cache: torch.Tensor) -> PagedCache:
    """A cache laid out as (page, position, head, dimension)."""
    return PagedCache(cache, cache.data_ptr())


class PagesRead(NamedTuple):
    """What one attention operator reads: per group of queries, a row of the block table and a length."""

    operator: str
    kv_lengths_name: str
    block_table: npt.NDArray[np.int64]
    kv_lengths: tuple[int, ...]
    query_lengths: tuple[int, ...]

    def announce(self, caches: Iterable[PagedCache]) -> None:
        """Tell listeners of each distinct cache that will be read."""
        # The latent cache of multi-head latent attention is both keys and values, and is read once.
        for cache in {cache.address: cache for cache in caches}.values():
            pages, page_size = cache.pages.shape[:2]
            announce(
                AttentionRead(
                    operator=self.operator,
                    cache=cache.address,
                    page_size=page_size,
                    pages=pages,
                    block_table=self.block_table,
                    kv_lengths=self.kv_lengths,
                    query_lengths=self.query_lengths,
                )
            )
        announced()

    def page_numbers(self, cache: PagedCache) -> list[npt.NDArray[np.int64]]:
        """Per group, the pages to read; the device stops where one is not in the cache or not in the table."""
        pages, page_size = cache.pages.shape[:2]
        columns = self.block_table.shape[1]
        found = []
        for group, length in enumerate(self.kv_lengths):
            # Assumption: tiling accepts a length beyond the table, past which the device then reads. Source: torch_npu
            # 2.14.0 documents that the table is as wide as the longest length needs, and that page numbers are not
            # checked. On a device: a length of one more than the table holds, in a process of its own.
            if length > columns * page_size:
                wide = f"{columns} columns of {page_size} positions"
                fault.fail(self.operator, f"{self.kv_lengths_name}[{group}] is {length}, but block_table has {wide}")
            needed = self.block_table[group, : -(-length // page_size)]
            outside = needed[(needed < 0) | (needed >= pages)]
            if outside.size:
                fault.fail(self.operator, f"block_table[{group}] has page {outside[0]} of a cache of {pages} pages")
            found.append(needed)
        return found


def table_of(arguments: Arguments, block_table: torch.Tensor, groups: int) -> npt.NDArray[np.int64]:
    """The block table as it is when the operator starts, one row for each of `groups`."""
    arguments.require(block_table.dtype == torch.int32, "block_table", block_table.dtype, "it must be int32")
    arguments.require_shape(block_table.dim() == 2, "block_table", block_table, "it must have 2 axes")
    one_each = block_table.shape[0] == groups
    arguments.require_shape(
        one_each, "block_table", block_table, f"it must have {groups} rows, one per group of queries"
    )
    return block_table.numpy().astype(np.int64)  # a copy, which listeners may keep
