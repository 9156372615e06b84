"""Emulates the NPU in every process that imports torch, where the environment asks for it.

`import torch` calls what packages declare as entry points of the group ``torch.backends``; this one is ours
(`pyproject.toml`). So the emulation also reaches the processes that sglang spawns.
"""

import os

from harness.npu import install
from harness.npu.presence import EMULATE


def autoload() -> None:
    """Install the emulated NPU where ``HARNESS_NPU_EMULATE=1`` is in the environment; else do nothing."""
    if os.environ.get(EMULATE) == "1":
        install(torch_is_importing=True)
