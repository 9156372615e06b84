"""Keys and values that are not cached: those of all groups one after another, in the layout TND."""

from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments
from harness.npu.paged_cache import Rows


class PackedKeys(NamedTuple):
    """`tensors` have axes (token, head, dimension); `ends` are cumulative, one per group of queries."""

    arguments: Arguments
    tensors: dict[str, torch.Tensor]
    heads: int
    ends_name: str
    ends: tuple[int, ...]

    def groups(self, groups: int) -> list[Rows]:
        """The rows of each of `groups` groups; refuses what the device refuses."""
        require, ends = self.arguments.require, self.ends
        require(len(ends) == groups, self.ends_name, list(ends), f"there must be {groups}, one per group of queries")
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        ordered = all(length >= 0 for length in lengths)
        require(ordered, self.ends_name, list(ends), "without pages, lengths are cumulative and must not decrease")
        tokens = len(self.tensors["key"])
        # Assumption: rows after the last group are not looked at.
        within = sum(lengths) <= tokens
        require(within, self.ends_name, list(ends), f"the last must not exceed T of key, {tokens}")
        for name, tensor in self.tensors.items():
            whole = tensor.dim() == 3 and tuple(tensor.shape[:2]) == (tokens, self.heads)
            rule = f"without pages it must be ({tokens}, num_key_value_heads {self.heads}, D)"
            self.arguments.require_shape(whole, name, tensor, rule)
        return [
            {name: tensor[end - length : end] for name, tensor in self.tensors.items()}
            for end, length in zip(ends, lengths, strict=True)
        ]
