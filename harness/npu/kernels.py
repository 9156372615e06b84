"""Kernels of sgl_kernel_npu that are emulated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from harness.npu import fault
from harness.npu.arguments import Arguments
from harness.npu.overloads import Operator, Traits, operator
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


@operator(writes=True, returns=("out_cache_loc",))
def cache_loc_update(
    req_indices: torch.Tensor,
    token_pool: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
) -> torch.Tensor:
    """Write to `out_cache_loc` the KV slots of each request's positions from its start to its end, in turn.

    `token_pool` has a row of slots for each request. Names: the kernel's own; sglang passes them by position
    (`kernels/ops/speculative/cache_locs.py`, `assign_extend_cache_locs_func`).
    """
    arguments = Arguments("cache_loc_update")
    for name, numbers in (
        ("req_indices", req_indices), ("token_pool", token_pool), ("start_offset", start_offset),
        ("end_offset", end_offset), ("out_cache_loc", out_cache_loc),
    ):  # fmt: skip
        arguments.require_integers(name, numbers)
    requests, width = token_pool.shape
    filled = 0
    for row, start, end in zip(req_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=True):
        count = max(0, end - start)
        # Assumption: what lies outside either table stops the device.
        if not (0 <= row < requests and start >= 0 and end <= width and filled + count <= len(out_cache_loc)):
            fault.fail(
                arguments.operator,
                f"request {row} from {start} to {end} does not fit a token_pool of {[requests, width]} "
                f"and {len(out_cache_loc) - filled} places left",
            )
        out_cache_loc[filled : filled + count] = token_pool[row, start:end]
        filled += count
    return out_cache_loc
