"""An Ascend NPU emulated on the CPU, with memory of its own, streams, graphs and the operators that sglang calls.

`install()` changes the current process, and must run before sglang is imported; `autoload` calls it in every process
that imports torch, where the environment asks for it. It

* gives torch a device called ``npu`` with memory that no host tensor shares (`device`, `memory`, `dispatch`, `pinned`);
* gives torch the runtime module ``torch.npu`` (`runtime`, `stream`, `graph`, `synchronisation`);
* gives torch.distributed the backend ``hccl`` (`communication`);
* makes ``torch_npu``, ``torchair``, ``acl``, ``sgl_kernel_npu`` and ``triton.language.extra.cann`` importable
  (`modules`, `finder`), with what is emulated (`operators`, `kernels`, `compiler`, ...) and, for all else, stubs
  that raise `NotImplementedError` with their own name when they are called (`registry`);
* lets torchvision import beside a torch it was not built for (`vision`);
* makes Triton interpret kernels, by the default ``TRITON_INTERPRET=1``.

Known limits:

* Work runs when it is submitted unless a test holds a stream back (`interleaving`): there is no real concurrency.
* The allocator reuses no memory that a tensor still refers to, so a buffer that is freed too early for another stream
  is not seen.
* There is one device. ``torch.UntypedStorage(n, device="npu")`` ends the process: torch asks for an allocator in C++.
* Nothing here was checked against an NPU. Each assumption about the device is a comment where it is made.
"""

import os

from harness.npu import presence

__all__ = ["install", "is_installed"]

_installed = False


def is_installed() -> bool:
    """Whether this process runs over the emulated NPU."""
    return _installed


def install(require_no_device: bool = True, torch_is_importing: bool = False) -> None:
    """Emulate an NPU in this process; a second call does nothing.

    Refuses, by `RuntimeError`, where a real NPU and its torch_npu are there, because a result of the
    emulation could then be taken for one of the device. ``HARNESS_NPU_BESIDE_DEVICE=1`` in the environment, or
    `require_no_device` false, lifts that. Also refuses where sglang or another torch_npu is imported already:
    both bind the device. `torch_is_importing` says that `import torch` itself makes this call, so that sglang
    may have been imported in part, but cannot have bound anything.
    """
    global _installed
    if _installed:
        return
    presence.refuse_if_too_late(torch_is_importing)
    if require_no_device:
        presence.refuse_beside_real_device()
    # Triton reads this when a kernel is decorated, so it must be there before any module with kernels is.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    presence.keep_real_torch_npu_out()

    # Imported here, because these import torch, which must not happen before the above.
    from harness.npu import communication, device, finder, pinned, triton_launch, vision

    for room in (device, pinned, triton_launch, communication, finder, vision):
        room.activate()
    _installed = True
