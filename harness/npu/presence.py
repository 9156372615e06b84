"""Whether a real NPU is here, and whether this process can still be given an emulated one."""

import glob
import importlib.util
import os
import sys

#: Asks, with the value 1, for the emulation in every process that imports torch (`harness.npu.autoload`).
EMULATE = "HARNESS_NPU_EMULATE"
#: Allows, with the value 1, the emulation on a machine that has a real NPU; asks for nothing.
BESIDE_DEVICE = "HARNESS_NPU_BESIDE_DEVICE"


def real_device() -> str | None:
    """What shows that this machine has a usable real NPU, or None.

    The device nodes are looked at rather than `torch_npu.npu.is_available()`: importing the real torch_npu
    takes torch's only custom device slot, after which nothing can be emulated in this process.
    """
    nodes = sorted(glob.glob("/dev/davinci[0-9]*"))
    if nodes and importlib.util.find_spec("torch_npu") is not None:
        return nodes[0]
    return None


def refuse_beside_real_device() -> None:
    """Raise `RuntimeError` where `real_device` finds one, unless ``HARNESS_NPU_BESIDE_DEVICE=1`` allows it."""
    found = real_device()
    if found is not None and os.environ.get(BESIDE_DEVICE) != "1":
        raise RuntimeError(
            f"A real NPU is here ({found}, and torch_npu is installed), so none is emulated: "
            f"set {BESIDE_DEVICE}=1 to emulate one nevertheless."
        )


def refuse_if_too_late(torch_is_importing: bool = False) -> None:
    """Raise `RuntimeError` where something has bound the device that was to be emulated.

    While torch is being imported, sglang cannot have bound it yet, although it may be what imports torch.
    """
    if torch_is_importing:
        if "torch_npu" in sys.modules:
            raise RuntimeError(
                "The NPU cannot be emulated in this process, because `import torch` has loaded the torch_npu that is "
                "installed here: use an environment without it."
            )
        return
    for name in ("sglang", "torch_npu"):
        if name in sys.modules:
            raise RuntimeError(
                f"The NPU cannot be emulated in this process, because {name} is imported already: "
                "call harness.npu.install() first, and where `import torch` loads torch_npu by itself, "
                "set TORCH_DEVICE_BACKEND_AUTOLOAD=0."
            )


def keep_real_torch_npu_out() -> None:
    """Stop `import torch` from loading an installed torch_npu of its own accord."""
    if "torch" not in sys.modules and importlib.util.find_spec("torch_npu") is not None:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
