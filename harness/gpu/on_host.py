"""Tensors that sglang makes on "cuda" by name, made on the CPU instead."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnHost(TorchFunctionMode):
    """While it is entered, `device="cuda"` is the CPU.

    flashinfer_backend.py has the name in it (0.5.15 to 0.5.23) where other backends ask the model runner.
    """

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call `function` with the device replaced."""
        named = dict(kwargs or {})
        device = named.get("device")
        if device is not None and torch.device(device).type == "cuda":
            named["device"] = "cpu"
        return function(*args, **named)
