"""The environment in which any Python process has an emulated NPU and a certain sglang."""

import os
from importlib.metadata import entry_points

from harness.errors import UsageError
from harness.npu.presence import EMULATE
from harness.subject.source import Source


def require_installed() -> None:
    """Raise UsageError where `import torch` would not find the emulation: it comes by an entry point."""
    declared = {point.value for point in entry_points(group="torch.backends")}
    if "harness.npu.autoload:autoload" not in declared:
        raise UsageError("the harness is not installed in this environment: `pip install` it, anew if it is old.")


def environment(source: Source, emulated: bool) -> dict[str, str]:
    """This process's environment, with `source` as the sglang that is imported, and an emulated NPU if asked."""
    inherited = os.environ.get("PYTHONPATH")
    own = {"PYTHONPATH": os.pathsep.join([source.path, inherited] if inherited else [source.path])}
    if emulated:
        own |= {EMULATE: "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    return os.environ | own
