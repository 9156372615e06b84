"""Which driver a device runs under: what two recordings of one GPU or NPU may differ by."""

import ctypes
import re
from pathlib import Path

#: Where the kernel module of NVIDIA's driver tells its version (the driver's README, "The /proc filesystem interface").
NVIDIA = Path("/proc/driver/nvidia/version")
#: Where the installer of the Ascend driver writes what it has installed, by default.
ASCEND = Path("/usr/local/Ascend/driver/version.info")
#: The library of NVIDIA's driver, which knows up to which CUDA it runs.
CUDA_LIBRARY = "libcuda.so.1"


def nvidia_driver(text: str) -> str:
    """The version in `/proc/driver/nvidia/version` (`550.54.15`), or an empty string."""
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", f"{text}\n", re.MULTILINE)
    return found.group(1) if found else ""


def cuda_driver(number: int) -> str:
    """The version that `cuDriverGetVersion` of CUDA's driver API means by `number`: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def ascend_driver(text: str) -> str:
    """The version in the Ascend driver's `version.info` (`24.1.rc2`), or an empty string."""
    found = re.search(r"^\s*version\s*=\s*(\S+)\s*$", text, re.MULTILINE | re.IGNORECASE)
    return found.group(1) if found else ""


def of_gpu(file: Path = NVIDIA, library: str = CUDA_LIBRARY) -> dict[str, str]:
    """`nvidia_driver` and `cuda_driver` of this machine, as far as it tells them."""
    versions = {"nvidia_driver": nvidia_driver(_text(file))}
    number = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        failed = True
    versions["cuda_driver"] = "" if failed or not number.value else cuda_driver(number.value)
    return {name: version for name, version in versions.items() if version}


def of_npu(file: Path = ASCEND) -> dict[str, str]:
    """`ascend_driver` of this machine, where it tells it."""
    version = ascend_driver(_text(file))
    return {"ascend_driver": version} if version else {}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
