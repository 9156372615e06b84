"""How an emulated kernel refuses an argument: with its name, its value, and the rule that it breaks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class Refusal(NamedTuple):
    """Refuses arguments of `kernel`."""

    kernel: str

    def require(self, holds: bool, argument: str, value: Any, rule: str) -> None:
        """Raise RuntimeError, as the kernel's own checks do, where `rule` does not hold."""
        if not holds:
            raise RuntimeError(f"{self.kernel}: {argument} is {value}: {rule}")

    def require_shape(self, argument: str, tensor: torch.Tensor, shape: tuple[int, ...], names: str) -> None:
        """Refuse a tensor of another shape than `shape`, which is that of `names`."""
        rule = f"it must be {list(shape)} ({names})"
        self.require(tuple(tensor.shape) == shape, argument, f"of shape {list(tensor.shape)}", rule)

    def require_int32(self, argument: str, tensor: torch.Tensor) -> None:
        """Refuse indices that the kernel cannot read: other than int32, or with gaps between them."""
        self.require(tensor.dtype == torch.int32, argument, tensor.dtype, "it must be torch.int32")
        stride = tensor.stride(-1) if tensor.dim() else 0
        self.require(stride == 1, argument, f"of stride {stride}", "its last dimension must be contiguous")

    def require_one_device(self, tensors: Mapping[str, torch.Tensor | None]) -> None:
        """Refuse tensors that do not lie where the first one lies."""
        given = {name: tensor.device for name, tensor in tensors.items() if tensor is not None}
        first, home = next(iter(given.items()))
        for name, device in given.items():
            self.require(device == home, name, f"on {device}", f"{first} lies on {home}")

    def require_neutral(self, given: Mapping[str, Any], neutral: Mapping[str, tuple[Any, ...]]) -> None:
        """Raise TypeError for an unknown argument, NotImplementedError for one that asks for what is not emulated."""
        for name, value in given.items():
            if name not in neutral:
                raise TypeError(f"{self.kernel}: there is no argument {name}")
            if not any(value is one or (one is not None and value == one) for one in neutral[name]):
                raise NotImplementedError(f"{self.kernel}: {name} = {value} is not emulated (see harness/gpu)")
