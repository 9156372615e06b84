"""Lets torchvision import beside a torch that it was not built for.

sglang up to 0.5.20 imports torchvision, whose wheel on PyPI is built for CUDA: beside a CPU torch its C++
library does not load, and its Python part fails where it describes two operators of that library. Declaring
them is enough for the import; calling them says that they have no implementation.
"""

import importlib.util
from pathlib import Path
from typing import Any

import torch

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_torch_library: Any = torch.library
_torch_ops: Any = torch.ops
_declared: list[Any] = []


def _library_loads() -> bool:
    """Whether torchvision is absent, or its C++ library declares the operators itself."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True
    try:
        for library in Path(spec.origin).parent.glob("_C*.so"):
            _torch_ops.load_library(library)
    except OSError:
        return False
    return hasattr(_torch_ops.torchvision, "nms")


def activate() -> None:
    """Declare torchvision's operators where its own library cannot."""
    if _library_loads():
        return
    library = _torch_library.Library("torchvision", "FRAGMENT")
    for operator in _OPERATORS:
        library.define(operator)
    _declared.append(library)  # the declarations are gone with the library object
