"""Reading sglang's tensors without its noticing: no stream waits, and no synchronisation is counted."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from harness.npu import is_installed
from harness.npu.memory import host_view, is_on_device

Integers = npt.NDArray[np.int64]


def integers(tensor: Any) -> Integers:
    """A copy of an integer tensor, or of a list of numbers."""
    if not isinstance(tensor, torch.Tensor):
        return np.array(tensor, dtype=np.int64)
    if not is_on_device(tensor):
        return tensor.numpy().astype(np.int64)
    seen = host_view(tensor) if is_installed() else tensor.cpu()
    return seen.numpy().astype(np.int64)
