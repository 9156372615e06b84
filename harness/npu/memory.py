"""Device memory: storages on the device ``npu``, which no host tensor shares.

Every block of device memory is the storage of a CPU tensor that is never handed out (its `twin`), under another label:
a tensor on the device is a real torch tensor, with storage, strides and views of its own, over the bytes of the twin.
Kernels reach the bytes through `host_view`, a CPU tensor over the same bytes, and `device_tensor` labels what they
made. Nothing else may cross: whoever copies between host and device goes through `harness.npu.dispatch`.
"""

import weakref
from typing import Any

import torch

HOST = torch.device("cpu")
#: The only device. torch knows its name only once `harness.npu.device` is active.
DEVICE_TYPE = "npu"

# Bound before `pinned` wraps it.
_empty = torch.empty
_set = torch.ops.aten.set_.source_Storage_storage_offset
_on_host = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def is_on_device(value: object) -> bool:
    """Whether `value` is a tensor in device memory."""
    return isinstance(value, torch.Tensor) and value.device.type == DEVICE_TYPE


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU tensor over the bytes of a tensor on the device: for kernels, which must not let it out."""
    twin = tensor.untyped_storage().twin  # type: ignore[attr-defined]
    return _empty(0, dtype=tensor.dtype, device=HOST).set_(
        twin, tensor.storage_offset(), tensor.size(), tensor.stride()
    )


def device_tensor(made: torch.Tensor) -> torch.Tensor:
    """The tensor on the device over the bytes of `made`: fresh ones of a kernel, or those behind a `host_view`."""
    tensor: torch.Tensor = torch._C._acc.create_empty_tensor((0,), made.dtype)
    return relocate(tensor, _device_storage(made.untyped_storage()), made)


def resize(tensor: torch.Tensor, view: torch.Tensor) -> None:
    """Give `tensor` the size that its `view` was given by a kernel, and the new bytes if there are any."""
    relocate(tensor, _device_storage(view.untyped_storage()), view)


def relocate(tensor: torch.Tensor, storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    """Have `tensor` lie in `storage` as `like` lies in its own."""
    return set_storage(tensor, storage, like.storage_offset(), like.size(), like.stride())


def set_storage(
    tensor: torch.Tensor, storage: torch.UntypedStorage, offset: Any, size: Any, stride: Any
) -> torch.Tensor:
    """`Tensor.set_` of a tensor on the device: torch's kernel for CPU tensors looks at no bytes."""
    placed: torch.Tensor = _set.redispatch(_on_host, tensor, storage, offset, size, stride)
    return placed


def _device_storage(twin: torch.UntypedStorage) -> torch.UntypedStorage:
    """The storage on the device over the bytes of `twin`.

    torch keeps the Python object of a storage as long as the storage itself, so each can be an attribute of the other:
    the device's owns its twin, and the twin only remembers it.
    """
    remembered = vars(twin).get("device_storage")
    known: torch.UntypedStorage | None = remembered() if remembered is not None else None
    if known is not None and known.nbytes() == twin.nbytes():
        return known
    device = torch.device(DEVICE_TYPE, 0)
    made: Any = torch._C._construct_storage_from_data_pointer(twin.data_ptr(), device, twin.nbytes())
    made.twin = twin
    twin.device_storage = weakref.ref(made)  # type: ignore[attr-defined]
    storage: torch.UntypedStorage = made
    return storage
