"""The NPU's own operators, as attributes of ``torch_npu`` and of ``torch.ops.npu``.

An emulated operator is registered under the name ``npu.<name>``, by the decorators of `harness.npu.overloads`.
"""

from typing import Any

from harness.npu.registry import lookup


def is_operator(name: str) -> bool:
    """Whether an attribute of torch_npu is an operator, which then exists at least as a stub."""
    return name.startswith(("npu_", "_npu_"))


def operator(name: str, reached_through: str) -> Any:
    """The operator `name`, reached through ``torch_npu`` or ``torch.ops.npu``."""
    return lookup(f"npu.{name}", reached_as=f"{reached_through}.{name}")


class OperatorNamespace:
    """``torch.ops.npu``: unlike torch_npu, it has operators of any name (sgl_kernel_npu adds its own)."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return operator(name, "torch.ops.npu")
