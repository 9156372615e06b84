"""The arguments of operators: what the device's tiling refuses, and what only the emulation does."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

# Assumption: float32 and float64 are accepted, so that results can be compared closely. Source: torch_npu 2.14.0
# documents float16 and bfloat16 for fused attention; the device refuses others. On a device: nothing, cases there use
# bfloat16.
_FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_MOST_HEADS_PER_KV_HEAD = 64


class Arguments(NamedTuple):
    """The arguments of one call of an operator, each refused with its name and its value."""

    operator: str

    def require(self, holds: bool, argument: str, value: Any, rule: str) -> None:
        """Refuse a wrong argument as the device does, before anything runs there."""
        if not holds:
            raise RuntimeError(f"{self.operator}: {argument} is {value}: {rule}")

    def require_shape(self, holds: bool, argument: str, tensor: torch.Tensor, rule: str) -> None:
        """Refuse a tensor of a wrong shape."""
        self.require(holds, argument, f"of shape {list(tensor.shape)}", rule)

    def require_shape_of(self, name: str, pattern: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> None:
        """Refuse tensors that are not of the shape of `pattern`, which is the argument `name`."""
        for argument, tensor in tensors.items():
            alike = tensor.shape == pattern.shape
            self.require_shape(alike, argument, tensor, f"it must be that of {name}, {list(pattern.shape)}")

    def require_emulated(self, holds: bool, argument: str, value: Any) -> None:
        """Refuse an argument that a device may accept and the emulation does not know."""
        if not holds:
            raise NotImplementedError(f"{self.operator}: {argument} = {value} is not emulated (see harness/npu)")

    def require_neutral(self, given: Mapping[str, Any], neutral: Mapping[str, Any]) -> None:
        """Refuse optional arguments that are unknown, or known but asking for something that is not emulated."""
        for name, value in given.items():
            if name not in neutral:
                raise TypeError(f"{self.operator}: there is no argument {name}")
            self.require_emulated(value is None if neutral[name] is None else value == neutral[name], name, value)

    def require_one_dtype(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Refuse tensors of different types, and types without a floating point."""
        first = next(iter(tensors.values())).dtype
        for name, tensor in tensors.items():
            self.require_emulated(tensor.dtype in _FLOATING, name, tensor.dtype)
            self.require(tensor.dtype == first, name, tensor.dtype, f"all of {list(tensors)} must be {first}")

    def require_integers(self, argument: str, tensor: torch.Tensor) -> None:
        """Refuse indices that are no integers."""
        whole = tensor.dtype in (torch.int32, torch.int64)
        self.require(whole, argument, tensor.dtype, "it must be int32 or int64")

    def require_heads(self, heads: tuple[str, int], kv_heads: tuple[str, int]) -> None:
        """Refuse head counts that form no groups; each is a pair of an argument's name and its value."""
        (name, count), (kv_name, kv_count) = heads, kv_heads
        self.require(count > 0, name, count, "it must be positive")
        self.require(kv_count > 0, kv_name, kv_count, "it must be positive")
        self.require(count % kv_count == 0, kv_name, kv_count, f"it must divide {name}, {count}")
        few = count // kv_count <= _MOST_HEADS_PER_KV_HEAD
        self.require(few, name, count, f"it must be at most {_MOST_HEADS_PER_KV_HEAD} times {kv_name}, {kv_count}")

    def lengths(self, argument: str, values: Iterable[Any]) -> tuple[int, ...]:
        """The lengths in a list, an array or a tensor, of which none may be negative."""
        found = tuple(int(value) for value in values)
        self.require(all(length >= 0 for length in found), argument, list(found), "none may be negative")
        return found

    def lengths_in(self, argument: str, tensor: torch.Tensor) -> tuple[int, ...]:
        """The lengths in what must be a tensor, by the operator's schema."""
        kind = type(tensor).__name__
        self.require(isinstance(tensor, torch.Tensor), argument, f"a {kind}", "it must be a tensor")
        return self.lengths(argument, tensor)
