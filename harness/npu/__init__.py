"""An Ascend NPU emulated on the CPU, complete enough for unmodified sglang to build its attention metadata.

`install()` changes the current process, and must run before sglang is imported. It

* gives torch a device called ``npu``, whose tensors are CPU tensors (`device`, `host_memory`);
* gives torch the runtime module ``torch.npu`` (`runtime`, `graph`);
* makes ``torch_npu``, ``torchair``, ``acl``, ``sgl_kernel_npu`` and ``triton.language.extra.cann`` importable
  (`modules`, `finder`), with what is emulated (`operators`, `kernels`, `compiler`) and, for all else, stubs
  that raise `NotImplementedError` with their own name when they are called (`registry`);
* lets torchvision import beside a torch it was not built for (`vision`);
* makes Triton interpret kernels, by the default ``TRITON_INTERPRET=1``.

Known limits:

* Host and device share storage. A tensor "on the NPU" is a CPU tensor: its ``.device`` says cpu, ``.cpu()``
  returns the same storage, ``.to("npu")`` always copies, and mixing host and device operands is no error.
* Everything is synchronous: one queue, in program order, so a missing synchronisation is never seen.
* `NPUGraph` records nothing, and refuses to replay.
* Nothing here was checked against an NPU. Each assumption about the device is a comment where it is made.
"""

import os

from harness.npu import presence

__all__ = ["install", "is_installed"]

_installed = False


def is_installed() -> bool:
    """Whether this process runs over the emulated NPU."""
    return _installed


def install(require_no_device: bool = True) -> None:
    """Emulate an NPU in this process; a second call does nothing.

    Refuses, by `RuntimeError`, where a real NPU and its torch_npu are there, because a result of the
    emulation could then be taken for one of the device. ``HARNESS_NPU_EMULATE=1`` in the environment, or
    `require_no_device` false, lifts that. Also refuses where sglang or another torch_npu is imported already:
    both bind the device.
    """
    global _installed
    if _installed:
        return
    presence.refuse_if_too_late()
    if require_no_device and os.environ.get("HARNESS_NPU_EMULATE") != "1":
        presence.refuse_beside_real_device()
    # Triton reads this when a kernel is decorated, so it must be there before any module with kernels is.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    presence.keep_real_torch_npu_out()

    # Imported here, because these import torch, which must not happen before the above.
    from harness.npu import device, finder, host_memory, vision

    for room in (device, host_memory, finder, vision):
        room.activate()
    _installed = True
