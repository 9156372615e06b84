"""The torch device ``npu``: every tensor made on it is a CPU tensor.

The device takes torch's slot for an out-of-tree backend (PrivateUse1). Two allocating kernels are enough:
`zeros`, `arange`, `tensor`, `.to` and the rest are composed of them and of kernels that then run on the CPU
tensor they get.
"""

from typing import Any

import torch
from torch.utils import backend_registration

from harness.npu import runtime

_CPU = torch.device("cpu")
# Bound before `host_memory` wraps them; a call through torch.ops.aten would cost twice as much.
_empty = torch.empty
_empty_strided = torch.empty_strided

_Library: Any = torch.library.Library
_kernels: list[Any] = []


def _allocate(
    size: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """`aten::empty.memory_format` for the NPU."""
    # The device is named although CPU is the default: inside `with torch.device("npu")` it is not.
    if memory_format is None:
        return _empty(size, dtype=dtype, device=_CPU)
    return _empty(size, dtype=dtype, device=_CPU, memory_format=memory_format)


def _allocate_strided(
    size: list[int],
    stride: list[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """`aten::empty_strided` for the NPU."""
    return _empty_strided(size, stride, dtype=dtype, device=_CPU)


def _triangle_kernel(name: str) -> Any:
    """The NPU kernel of an operator that computes its result on the device it is given."""
    on_cpu = getattr(torch.ops.aten, name).default

    def indices(
        row: int,
        column: int,
        offset: int = 0,
        *,
        dtype: torch.dtype | None = torch.int64,
        layout: torch.layout | None = None,
        device: torch.device | None = None,
        pin_memory: bool | None = None,
    ) -> Any:
        return on_cpu(row, column, offset, dtype=dtype, device=_CPU)

    return indices


_TorchGenerator = torch.Generator


class _GeneratorType(type(_TorchGenerator)):  # type: ignore[misc]
    """Lets every torch generator count as an instance of the class that replaces `torch.Generator`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _TorchGenerator)


class _Generator(_TorchGenerator, metaclass=_GeneratorType):
    """`torch.Generator`, whose NPU generators are CPU ones: the kernels that consume them run on the CPU.

    A class and no function, because annotations such as ``torch.Generator | None`` are evaluated.
    """

    # Assumption: nothing compares the random numbers with those of hardware, whose generator is another one.
    def __new__(cls, device: Any = "cpu") -> Any:
        on_npu = torch.device(device).type == "npu"
        return _TorchGenerator(_CPU if on_npu else device)


def activate() -> None:
    """Register the device, its kernels and its runtime module with torch."""
    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise RuntimeError(f"torch {torch.__version__} has no Python device backends; torch 2.13 has them.")
    setup(rename="npu", backend_module=runtime)
    library = _Library("aten", "IMPL")
    library.impl("empty.memory_format", _allocate, "PrivateUse1")
    library.impl("empty_strided", _allocate_strided, "PrivateUse1")
    for name in ("tril_indices", "triu_indices"):
        library.impl(name, _triangle_kernel(name), "PrivateUse1")
    _kernels.append(library)  # the kernels are gone with the library object
    torch.Generator = _Generator  # type: ignore[misc]
