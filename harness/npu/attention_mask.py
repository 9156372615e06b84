"""Which positions a query sees in fused attention: sparse modes and their masks."""

import functools
from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.attention import visible_in_band

EVERYTHING = 2147483647
_COMPRESSED = (2048, 2048)
_WHOLE, _LEFT_UP, _RIGHT_DOWN, _BAND = _MODES = (0, 2, 3, 4)
_MODES_NOT_EMULATED = (1, 9)
_WORD = torch.int64


@functools.cache
def above_diagonal(length: int) -> torch.Tensor:
    """The causal mask of that size, which hides what is above the diagonal: bool, shared by all callers."""
    # The device is named because, inside `with torch.device(...)`, the CPU is not the default.
    return torch.ones(length, length, dtype=torch.bool, device="cpu").triu(1)


def is_causal(mask: torch.Tensor) -> bool:
    """Whether a square mask hides what is above the diagonal, and nothing else."""
    above = above_diagonal(mask.shape[-1])
    # Every attention call asks it, of four million bytes: as words they are compared in a sixtieth of the time.
    in_words = mask.element_size() == 1 and mask.is_contiguous() and mask.shape[-1] % _WORD.itemsize == 0
    if in_words and torch.equal(mask.view(_WORD), above.view(_WORD)):
        return True
    return torch.equal(mask != 0, above)


class Masking(NamedTuple):
    """The arguments that decide what is seen; `before` and `after` are `pre_tokens` and `next_tokens`."""

    mask: torch.Tensor | None
    sparse_mode: int
    before: int
    after: int

    def as_read(self, layout: str, query_lengths: tuple[int, ...]) -> "Masking":
        """What the device makes of it: of one padded query without rope it reads the whole mask, and nothing else."""
        whole = self.mask is None or self.mask.shape[-2:] != _COMPRESSED
        if layout == "TND" or max(query_lengths, default=0) != 1 or not whole:
            # Assumption: a causal mask of 2048 by 2048 is what the sparse mode says, though documented otherwise.
            return self
        return Masking(self.mask, _WHOLE, EVERYTHING, EVERYTHING)

    def check(self, arguments: Arguments, layout: str, query_lengths: tuple[int, ...], capacity: int) -> None:
        """Refuse what the device refuses; a row of the block table holds `capacity` positions."""
        mode, mask = self.sparse_mode, self.mask
        arguments.require_emulated(mode not in _MODES_NOT_EMULATED, "sparse_mode", mode)
        arguments.require(mode in _MODES, "sparse_mode", mode, f"it must be one of {_MODES}")
        if mask is not None:
            allowed = mask.dtype in (torch.bool, torch.int8, torch.uint8)
            arguments.require(allowed, "atten_mask", mask.dtype, "it must be bool, int8 or uint8")
        if mode != _WHOLE:
            self._check_compressed(arguments)
        elif mask is not None:
            arguments.require_shape(layout != "TND", "atten_mask", mask, "TND has no mask where sparse_mode is 0")
            self._check_whole(arguments, mask, query_lengths, capacity)
        if mode == _BAND:
            rule = f"with next_tokens {self.after} it must be at least 0"
            arguments.require(self.before + self.after >= 0, "pre_tokens", self.before, rule)

    def _check_compressed(self, arguments: Arguments) -> None:
        mask, rule = self.mask, f"sparse_mode {self.sparse_mode} needs one of shape {_COMPRESSED}"
        if mask is None:
            raise RuntimeError(f"{arguments.operator}: atten_mask is None: {rule}")
        shapes = (_COMPRESSED, (1, *_COMPRESSED), (1, 1, *_COMPRESSED))
        arguments.require_shape(tuple(mask.shape) in shapes, "atten_mask", mask, rule)
        # That the mask is causal is left to the caller, as torch_npu 2.14.0 documents.
        arguments.require_emulated(is_causal(mask.view(_COMPRESSED)), "atten_mask", "one that is not causal")

    def _check_whole(
        self, arguments: Arguments, mask: torch.Tensor, query_lengths: tuple[int, ...], capacity: int
    ) -> None:
        arguments.require_emulated(self.before == EVERYTHING, "pre_tokens", self.before)
        arguments.require_emulated(self.after == EVERYTHING, "next_tokens", self.after)
        longest, batch = max(query_lengths, default=0), len(query_lengths)
        # Assumption: a mask of 3 axes may have an entry for each request, as sglang's windows do in graphs. Source:
        # torch_npu 2.14.0 documents one for all, or 4 axes. On a device: decode two requests with masks that differ.
        arguments.require_shape(mask.dim() in (2, 3, 4), "atten_mask", mask, "it must have 2 to 4 axes")
        entries = _entries(mask, longest)
        fits = len(entries) in (1, batch) and entries.shape[1] >= longest and entries.shape[2] >= capacity
        rule = f"it must hide at least {longest} by {capacity}, once or {batch} times, where sparse_mode is 0"
        arguments.require_shape(fits, "atten_mask", mask, rule)

    def visible(self, group: int, longest: int, queries: int, positions: int) -> torch.Tensor | None:
        """What each query of a group sees, or None for everything; `longest` is the most queries of any group."""
        if self.sparse_mode == _WHOLE:
            if self.mask is None:
                return None
            entries = _entries(self.mask, longest)
            return entries[group if len(entries) > 1 else 0, :queries, :positions] == 0
        # Assumption: the last query is aligned to the last position, but in mode 2 the first to the first, as the names
        # of the modes say. Source: torch_npu 2.14.0 names mode 2 leftUpCausal and mode 3 rightDownCausal, and documents
        # that neither has an effect for a single query. On a device: the layouts of cases with fewer queries than
        # positions.
        offset = 0 if self.sparse_mode == _LEFT_UP and longest > 1 else positions - queries
        if self.sparse_mode == _BAND:
            # Assumption: the window holds for a single query too; sglang needs it. Source: torch_npu 2.14.0 documents
            # that pre_tokens, next_tokens and sparse_mode have no effect then. On a device: decode beyond the window,
            # and see whether what the positions before it hold matters.
            return visible_in_band(queries, positions, offset, self.after, self.before)
        return visible_in_band(queries, positions, offset)


def _entries(mask: torch.Tensor, longest: int) -> torch.Tensor:
    """A whole mask as (entry, query, position); of two axes, the first is entries where groups have one query."""
    rows = 1 if mask.dim() == 2 and longest == 1 else mask.shape[-2]
    return mask.reshape(-1, rows, mask.shape[-1])
