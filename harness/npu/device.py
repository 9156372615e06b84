"""The torch device ``npu``, and its kernels.

The device takes torch's slot for an out-of-tree backend (PrivateUse1). The kernels here make device memory or move a
tensor within it; everything else runs through `dispatch.run`, and `zeros`, `arange`, `tensor`, `.to` and the rest are
composed of these by torch.
"""

from typing import Any

import torch
from torch.utils import backend_registration

from harness.npu import dispatch, runtime
from harness.npu.memory import DEVICE_TYPE, HOST, device_tensor, host_view, relocate, resize, set_storage
from harness.npu.pinned import pin
from harness.npu.stream import keep_while_late

# Bound before `pinned` wraps them; a call through torch.ops.aten would cost twice as much.
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
    # The host is named although it is the default: inside `with torch.device("npu")` it is not.
    if memory_format is None:
        return device_tensor(_empty(size, dtype=dtype, device=HOST))
    return device_tensor(_empty(size, dtype=dtype, device=HOST, memory_format=memory_format))


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
    return device_tensor(_empty_strided(size, stride, dtype=dtype, device=HOST))


def _to_copy(
    tensor: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """`aten::_to_copy` from the NPU: a copy to the host that need not be waited for goes to pinned memory."""
    target = tensor.device if device is None else device
    kept = memory_format in (None, torch.preserve_format)
    like = torch.empty_like(
        tensor, dtype=dtype, device="meta", memory_format=torch.preserve_format if kept else memory_format
    )
    made = torch.empty_strided(like.size(), like.stride(), dtype=like.dtype, device=target)
    if non_blocking and target.type == "cpu":
        pin(made)
    return made.copy_(tensor, non_blocking)


def _set_to_storage(tensor: torch.Tensor, storage: Any) -> torch.Tensor:
    """`aten::set_.source_Storage`: the whole of a storage as one axis."""
    return set_storage(tensor, storage, 0, [storage.nbytes() // tensor.element_size()], [1])


def _set_to_part(
    tensor: torch.Tensor, storage: Any, offset: int, size: list[int], stride: list[int] | None = None
) -> torch.Tensor:
    """`aten::set_.source_Storage_storage_offset`."""
    strides = stride if stride else _empty(size, device="meta").stride()
    return set_storage(tensor, storage, offset, size, strides)


def _set_to_tensor(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`aten::set_.source_Tensor`."""
    return relocate(tensor, source.untyped_storage(), source)


def _resize_(
    tensor: torch.Tensor, size: list[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """`aten::resize_`: new bytes where the old ones do not suffice."""
    view = host_view(tensor)
    view.resize_(size) if memory_format is None else view.resize_(size, memory_format=memory_format)
    resize(tensor, view)
    return tensor


def _triangle_kernel(name: str) -> Any:
    """The NPU kernel of an operator that computes its result on the device it is given."""
    on_host = getattr(torch.ops.aten, name).default

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
        return device_tensor(on_host(row, column, offset, dtype=dtype, device=HOST))

    return indices


def _deep_copy(tensor: torch.Tensor, memo: dict[int, Any]) -> Any:
    """`copy.deepcopy` of a tensor. torch's own makes a storage by the device's allocator, which is not in Python."""
    if tensor.device.type != DEVICE_TYPE:
        return _torch_deep_copy(tensor, memo)
    if id(tensor) not in memo:
        memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
    return memo[id(tensor)]


def _data_ptr(tensor: torch.Tensor) -> int:
    """`torch.Tensor.data_ptr`: a kernel may reach the memory by its address when the tensor is long gone.

    A device frees memory in the order of its stream, after the work that was given to it before; here work that is held
    back would find whatever the host has put there since.
    """
    if tensor.device.type == DEVICE_TYPE:
        keep_while_late(tensor.untyped_storage())
    return _torch_data_ptr(tensor)  # type: ignore[no-any-return]


_torch_deep_copy: Any = torch.Tensor.__deepcopy__
_torch_data_ptr: Any = torch.Tensor.data_ptr
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
        on_device = torch.device(device).type == DEVICE_TYPE
        return _TorchGenerator(HOST if on_device else device)


_KERNELS = {
    "empty.memory_format": _allocate,
    "empty_strided": _allocate_strided,
    "_to_copy": _to_copy,
    "_copy_from": dispatch.copy,
    "set_.source_Storage": _set_to_storage,
    "set_.source_Storage_storage_offset": _set_to_part,
    "set_.source_Tensor": _set_to_tensor,
    "resize_": _resize_,
    "tril_indices": _triangle_kernel("tril_indices"),
    "triu_indices": _triangle_kernel("triu_indices"),
}


def activate() -> None:
    """Register the device, its kernels and its runtime module with torch."""
    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise RuntimeError(f"torch {torch.__version__} has no Python device backends; torch 2.13 has them.")
    setup(rename=DEVICE_TYPE, backend_module=runtime)
    everything = _Library("_", "IMPL")
    everything.fallback(dispatch.run, "PrivateUse1")
    library = _Library("aten", "IMPL")
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel, "PrivateUse1")
    # Else copying a conjugated tensor would call itself without end.
    for key in ("Conjugate", "Negative"):
        library.impl("_copy_from", torch.library.fallthrough_kernel, key)
    _kernels.extend((everything, library))  # the kernels are gone with the library objects
    torch.Generator = _Generator  # type: ignore[misc]
    torch.Tensor.__deepcopy__ = _deep_copy  # type: ignore[method-assign]
    torch.Tensor.data_ptr = _data_ptr  # type: ignore[method-assign, assignment]
