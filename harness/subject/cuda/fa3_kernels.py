"""The vendor's kernels of FlashAttention 3: whether they can run here, and what is put in their place on the CPU."""

import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import torch

from harness.gpu import sgl_kernel

#: Where sglang asks whether the GPU is one of FlashAttention 3's: up to 0.5.16, and from 0.5.17 on.
_GUARDS = ("sglang.jit_kernel.flash_attention_v3", "sglang.kernels.ops.attention.flash_attention_v3")
#: The major compute capabilities that sglang lets FlashAttention 3 run on (`attention_registry.py`, 0.5.15 to 0.5.23).
_CAPABILITIES = (8, 9)


def require() -> None:
    """Raise RuntimeError where FlashAttention 3 cannot run on the GPU that torch sees."""
    major, minor = torch.cuda.get_device_capability()
    if major not in _CAPABILITIES:
        raise RuntimeError(
            f"FlashAttention 3 runs on GPUs of compute capability 8 and 9, and this one has {major}.{minor}: "
            "record on another one, or use the subject cuda"
        )
    if find_spec("sgl_kernel") is None:
        raise RuntimeError(
            "the package sgl_kernel, which has FlashAttention 3, is not installed: pip install the sglang-kernel that "
            "this sglang asks for, or use the subject cuda"
        )


def installed() -> str:
    """The version of the package that has FlashAttention 3, by its name of 0.5.15 to 0.5.23 or its earlier one."""
    for distribution in ("sglang-kernel", "sgl-kernel"):
        with suppress(PackageNotFoundError):
            return version(distribution)
    return "unknown"


def emulate() -> None:
    """Have sglang find the emulated kernels, before it is imported."""
    sgl_kernel.install()


def allow() -> None:
    """Have the sglang that was imported call the emulated kernels without a GPU."""
    guard = next(name for name in _GUARDS if name in sys.modules)
    import_module(guard)._is_fa3_supported = lambda device=None: True  # type: ignore[attr-defined]
