"""FlashInfer's kernels: whether they can run here, and what is put in their place on the CPU."""

import importlib
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from unittest.mock import patch

import torch

from harness.gpu import flashinfer
from harness.gpu.on_host import OnHost

#: The oldest GPUs that FlashInfer builds kernels for (its README: Turing).
_OLDEST = (7, 5)


def require() -> None:
    """Raise RuntimeError where FlashInfer cannot run on the GPU that torch sees."""
    capability = torch.cuda.get_device_capability()
    if capability < _OLDEST:
        raise RuntimeError(
            f"FlashInfer runs on GPUs from compute capability {_OLDEST[0]}.{_OLDEST[1]} on, and this one has "
            f"{capability[0]}.{capability[1]}: record on another one, or use the subject cuda"
        )
    if find_spec("flashinfer") is None:
        raise RuntimeError(
            "the package flashinfer is not installed: pip install the flashinfer-python that this sglang asks for, or "
            "use the subject cuda"
        )


def installed() -> str:
    """The version of the package, by its name of 0.5.15 to 0.5.23."""
    with suppress(PackageNotFoundError):
        return version("flashinfer-python")
    return "unknown"


def emulate() -> None:
    """Have what sglang makes on a GPU by name lie on the CPU, in this process from now on."""
    OnHost().__enter__()  # type: ignore[no-untyped-call]


def allow() -> None:
    """Have the backend that was imported call the emulated kernels.

    What it imports where FlashInfer is available, it does when it is executed again. Nothing else of sglang sees the
    package: it would import of it what only a GPU needs.
    """
    backend = importlib.import_module("sglang.srt.layers.attention.flashinfer_backend")
    flashinfer.install()
    with patch("sglang.srt.utils.is_flashinfer_available", lambda: True):
        importlib.reload(backend)
