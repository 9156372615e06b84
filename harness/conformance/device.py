"""A device as cases use it: tensors there, operators by the names that sglang calls them by, and waiting for it."""

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

#: The registry's prefix of operators that are attributes of torch_npu, or of `torch.ops.npu` alone.
OPERATOR = "npu."


class Host(NamedTuple):
    """A tensor that stays on the host."""

    tensor: torch.Tensor


class Device:
    """The NPU of this process, real or emulated; torch_npu must be importable by then."""

    def __init__(self) -> None:
        self._torch_npu: Any = importlib.import_module("torch_npu")

    def place(self, value: Any) -> Any:
        """A tensor on the device, unless it is for the host, and so each of a list; anything else as it is."""
        if isinstance(value, Host):
            return value.tensor.clone()
        if isinstance(value, list):
            return [self.place(one) for one in value]
        return value.to("npu") if isinstance(value, torch.Tensor) else value

    def placed(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`place` for each argument of a call."""
        return {name: self.place(value) for name, value in arguments.items()}

    def operator(self, name: str) -> Any:
        """What the registry calls `name`: an operator of torch_npu or sgl_kernel_npu, or a kernel by its path."""
        if name.startswith(OPERATOR):
            own = name.removeprefix(OPERATOR)
            if hasattr(self._torch_npu, own):
                return getattr(self._torch_npu, own)
            importlib.import_module("sgl_kernel_npu")  # adds its operators to those of torch_npu
            return getattr(torch.ops.npu, own)
        module, _, kernel = name.rpartition(".")
        return getattr(importlib.import_module(module), kernel)

    def synchronize(self) -> None:
        """Wait, so that an error of the device is an error of what caused it."""
        self._torch_npu.npu.synchronize()

    def wait_for(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Copies on the host, once the device has done its work."""
        self.synchronize()
        return {name: tensor.cpu() for name, tensor in tensors.items()}
