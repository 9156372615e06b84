"""Pinned host memory, of which the emulated device needs none.

torch asks the device for an allocator of pinned memory as soon as any device but the CPU is registered, and a
backend written in Python cannot offer one. So a request for pinned memory yields plain memory. Only the
factory functions to which sglang passes ``pin_memory`` are wrapped.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _device

_FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "tensor", "zeros", "zeros_like")


def _without_pinning(factory: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(factory)
    def plain(*args: Any, **kwargs: Any) -> torch.Tensor:
        kwargs.pop("pin_memory", None)
        return factory(*args, **kwargs)

    return plain


def _pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
    # Assumption: the tensor is not pinned already; only then does pinning give new storage.
    return self.clone()


def _record_stream(self: torch.Tensor, stream: Any) -> None:
    # Assumption: no memory is reused early, since the CPU allocator frees only what nothing refers to.
    return None


def activate() -> None:
    """Make requests for pinned memory, and for stream-ordered release, succeed without effect."""
    # `with torch.device(...)` recognises factories by identity, in a set it builds on first use. It must be
    # built from the unwrapped functions, which the wrappers call; else a meta context would silently stop
    # working.
    _device._device_constructors()
    for name in _FACTORIES:
        setattr(torch, name, _without_pinning(getattr(torch, name)))
    torch.Tensor.pin_memory = _pin_memory  # type: ignore[method-assign, assignment]
    torch.Tensor.record_stream = _record_stream  # type: ignore[method-assign, assignment]
