"""The layouts of fused attention's queries: how they divide into groups, and how outputs are put together again.

A group has one KV length and one row of the block table: it is the queries of one request.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments

_AXES = {"TND": 3, "BSH": 3, "BSND": 4, "BNSD": 4}
_NOT_EMULATED = ("BNSD_BSND", "NTD_TND", "TND_NTD", "BSH_NBSD", "BSND_NBSD", "BNSD_NBSD")
# Assumption: TND takes these in every floating type, over paged caches, and with as many queries as positions. Source:
# torch_npu 2.14.0 documents 128 and 192 in bfloat16, and 512 beside rope parts; it contradicts itself on paged caches,
# and has fewer queries than positions where sparse_mode is 3. sglang does all four. On a device: one call for each
# dimension.
_PACKED_DIMENSIONS = (64, 128, 192, 256, 512)


class Grouped(NamedTuple):
    """Queries by group, each with axes (query, head, dimension)."""

    groups: list[torch.Tensor]
    join: Callable[[list[torch.Tensor]], torch.Tensor]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many queries each group has."""
        return tuple(len(group) for group in self.groups)


class QueryArguments(NamedTuple):
    """What describes the queries, with the names that the operator gives to it."""

    arguments: Arguments
    layout: str
    heads_name: str
    heads: int
    lengths_name: str
    lengths: tuple[int, ...] | None

    def group(self, name: str, tensor: torch.Tensor) -> Grouped:
        """Divide the queries, or their rope parts, as the layout and the lengths say."""
        require_shape, layout, heads = self.arguments.require_shape, self.layout, self.heads
        self.arguments.require_emulated(layout not in _NOT_EMULATED, "input_layout", layout)
        self.arguments.require(layout in _AXES, "input_layout", layout, f"it must be one of {', '.join(_AXES)}")
        require_shape(tensor.dim() == _AXES[layout], name, tensor, f"{layout} has {_AXES[layout]} axes")
        if layout == "BSH":
            batch, longest, width = tensor.shape
            require_shape(width % heads == 0, name, tensor, f"{self.heads_name} {heads} must divide H")
            return self._padded(tensor.reshape(batch, longest, heads, width // heads))
        by_head = tensor.transpose(1, 2) if layout == "BNSD" else tensor
        require_shape(by_head.shape[-2] == heads, name, tensor, f"N must be {self.heads_name}, {heads}")
        return self._packed(name, by_head) if layout == "TND" else self._padded(by_head)

    def _packed(self, name: str, tensor: torch.Tensor) -> Grouped:
        """All groups one after another; the lengths are cumulative."""
        if name == "query":
            rule = f"in TND, D must be one of {_PACKED_DIMENSIONS}"
            self.arguments.require_shape(tensor.shape[2] in _PACKED_DIMENSIONS, name, tensor, rule)
        ends, ends_name, tokens = self.lengths, self.lengths_name, len(tensor)
        if ends is None:
            raise RuntimeError(f"{self.arguments.operator}: {ends_name} is None: TND needs it")
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        ordered = all(length >= 0 for length in lengths)
        self.arguments.require(ordered, ends_name, list(ends), "cumulative lengths must not decrease")
        complete = (ends[-1] if ends else 0) == tokens
        self.arguments.require(complete, ends_name, list(ends), f"the last must be T of {name}, {tokens}")
        return Grouped([tensor[end - length : end] for end, length in zip(ends, lengths, strict=True)], torch.cat)

    def _padded(self, tensor: torch.Tensor) -> Grouped:
        """One group per batch entry, of up to S queries; what follows a shorter group is padding."""
        batch, longest = tensor.shape[:2]
        lengths = (longest,) * batch
        # As documented, lengths have no effect where S is 1.
        if self.lengths is not None and longest > 1:
            lengths = per_group(self.arguments, self.lengths_name, self.lengths, batch)
        rule = f"none may exceed query's S, {longest}"
        self.arguments.require(max(lengths, default=0) <= longest, self.lengths_name, list(lengths), rule)
        groups = [tensor[entry, :length] for entry, length in enumerate(lengths)]
        return Grouped(groups, lambda outputs: self._join_padded(outputs, longest))

    def _join_padded(self, outputs: list[torch.Tensor], longest: int) -> torch.Tensor:
        heads, dimension = outputs[0].shape[1:]
        # Assumption: the outputs of padding are zeros. On a device: two requests in BSH, one of them shorter.
        joined = outputs[0].new_zeros(len(outputs), longest, heads, dimension)
        for entry, output in enumerate(outputs):
            joined[entry, : len(output)] = output
        if self.layout == "BSH":
            return joined.flatten(2)
        return joined if self.layout == "BSND" else joined.transpose(1, 2).contiguous()


def per_group(arguments: Arguments, name: str, lengths: tuple[int, ...], groups: int) -> tuple[int, ...]:
    """One length per group: a single one is every group's, and those beyond the groups are not used."""
    enough = len(lengths) == 1 or len(lengths) >= groups
    arguments.require(enough, name, list(lengths), f"there must be 1 length, or {groups}, one per group of queries")
    return lengths * groups if len(lengths) == 1 else lengths[:groups]
