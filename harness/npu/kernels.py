"""Kernels of sgl_kernel_npu that are emulated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from harness.npu.overloads import Operator, Traits
from harness.npu.registry import emulates


class _LaunchedBy:
    """A kernel that is launched as ``kernel[grid](...)``; the grid does not change what it computes."""

    def __init__(self, kernel: Callable[..., None]) -> None:
        self._kernel = Operator(kernel, Traits(writes=True))

    def __getitem__(self, grid: Any) -> Any:
        return self._kernel


@emulates("sgl_kernel_npu.mem_cache.allocator.alloc_extend_kernel")
@_LaunchedBy
def allocate_extension(
    prefix_lens: torch.Tensor,
    seq_lens: torch.Tensor,
    last_loc: torch.Tensor,
    free_pages: torch.Tensor,
    out: torch.Tensor,
    batch_size_bound: int,
    page_size: int,
    max_num_extend_tokens: int,
) -> None:
    """Write to `out` the KV slots of the positions from each request's prefix to its new length.

    Assumption: as in sglang's own page allocator, a request first fills the page of its last slot, then takes
    free pages in order, and requests follow one another both in `out` and in the free pages. On a device: one
    allocation of several requests, some of which begin inside a page.
    """
    start, stop, last = prefix_lens.numpy(), seq_lens.numpy(), last_loc.numpy()
    count = stop - start
    owner = np.repeat(np.arange(len(count)), count)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count - start, count)

    pages_before = (start + page_size - 1) // page_size  # also the first page that the request has to take
    pages_taken = (stop + page_size - 1) // page_size - pages_before
    first_taken = np.cumsum(pages_taken) - pages_taken

    page = position // page_size
    in_old_page = page < pages_before[owner]
    taken = np.where(in_old_page, 0, first_taken[owner] + page - pages_before[owner])
    free = free_pages.numpy()
    fresh = free[taken] * page_size + position % page_size if pages_taken.any() else 0
    out.numpy()[:] = np.where(in_old_page, last[owner] + 1 + position - start[owner], fresh)
