"""Pinned host memory: plain memory that is remembered as pinned, since only copies to and from it are asynchronous.

torch asks the device for an allocator of pinned memory as soon as any device but the CPU is registered, and a backend
written in Python cannot offer one. So the factory functions to which sglang passes ``pin_memory`` are wrapped.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

_FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")


def pin(tensor: torch.Tensor) -> torch.Tensor:
    """Remember the memory of a host tensor as pinned."""
    tensor.untyped_storage().pinned = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    """Whether a tensor lies in pinned host memory."""
    return bool(vars(tensor.untyped_storage()).get("pinned", False))


def _pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def make(*args: Any, pin_memory: bool = False, **kwargs: Any) -> torch.Tensor:
        # Assumption: what is asked of CUDA comes to lie on the NPU, since sglang imports
        # `torch_npu.contrib.transfer_to_npu` when it starts on one. Source: `init_npu_backend`, 0.5.15 to 0.5.23.
        # On a device: the states of linear attention, which `MambaPool` asks for on "cuda" up to 0.5.19.
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "npu"
        made = factory(*args, **kwargs)
        return pin(made) if pin_memory and made.device.type == "cpu" else made

    return make


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    return self if is_pinned(self) else pin(self.clone())


def _record_stream(self: torch.Tensor, stream: Any) -> None:
    # Assumption: no memory is reused early, since the CPU allocator frees only what nothing refers to.
    return None


def activate() -> None:
    """Make requests for pinned memory, and for stream-ordered release, succeed."""
    # `with torch.device(...)` recognises factories by identity, in a set it builds on first use. It must be
    # built from the unwrapped functions, which the wrappers call; else a meta context would silently stop
    # working.
    _device._device_constructors()
    for name in _FACTORIES:
        setattr(torch, name, _pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = _pin_memory  # type: ignore[method-assign, assignment]
    torch.Tensor.is_pinned = is_pinned  # type: ignore[method-assign, assignment]
    torch.Tensor.record_stream = _record_stream  # type: ignore[method-assign, assignment]
