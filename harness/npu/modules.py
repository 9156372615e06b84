"""The modules ``torch_npu`` and ``acl``: the parts that sglang touches without computing anything."""

import enum
import importlib.machinery
import types
from typing import Any

import torch

from harness.npu import runtime
from harness.npu.communication import ProcessGroupHCCL
from harness.npu.operators import OperatorNamespace, is_operator, operator
from harness.npu.registry import Stub


class _TorchNpu(types.ModuleType):
    """``torch_npu`` and its ``atb``: an unknown operator is a stub, any other unknown attribute is absent."""

    def __getattr__(self, name: str) -> Any:
        if is_operator(name):
            return operator(name, self.__name__)
        raise AttributeError(f"{self.__name__}.{name} is not emulated (see harness/npu/modules.py)")


#: Of the names that importing `transfer_to_npu` routes from `torch.cuda` to `torch.npu`, those that sglang calls on an
#: NPU: EAGLE drafts of 0.5.15 wait for the device, and a draft of DSpark asks whether it is captured (from 0.5.22).
_ROUTED = ("synchronize", "is_current_stream_capturing")
_PROFILER = ("profile", "AiCMetrics", "tensorboard_trace_handler", "_ExperimentalConfig", "ExportType", "ProfilerLevel")


class ProfilerActivity(enum.Enum):
    """What the NPU's profiler can watch."""

    CPU = enum.auto()
    NPU = enum.auto()


def _weak_ref_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Assumption: a reference that keeps the tensor alive differs in memory use only."""
    return tensor


def _apply_patches(patches: Any = None) -> None:
    """Assumption: the patches put the NPU's profiler in place of torch's, and profiling is not emulated."""


def _autoload() -> None:
    """What `import torch` calls where the real torch_npu is installed, whose modules these replace."""


def _get_device_info(device: int, attribute: int) -> tuple[int, int]:
    """`acl.rt.get_device_info`. Assumption: sglang only asks for the architecture, whether it is the 3510."""
    return (2201, 0)


def _module(name: str, **contents: Any) -> types.ModuleType:
    kind = _TorchNpu if name in ("torch_npu", "torch_npu.atb") else types.ModuleType
    module = kind(name)
    # A spec, because importlib.util.find_spec refuses a loaded module without one; a package, for its
    # submodules.
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__path__ = []
    vars(module).update(contents)
    return module


#: Assumption: the operators that DSpark of 0.5.18 asks for before it starts (`extra_ops_loader.py`) come with a library
#: of their own, which is installed. Models without sparse attention do not call them.
_SPARSE_ATTENTION = ("npu_sparse_attn_sharedkv_metadata", "npu_sparse_attn_sharedkv")


def build() -> dict[str, types.ModuleType]:
    """The modules by name, each also an attribute of its parent; `torch.ops.npu` comes with them."""
    torch.ops.npu = OperatorNamespace()  # type: ignore[attr-defined]
    sparse = {name: Stub(f"torch.ops._C_ascend.{name}") for name in _SPARSE_ATTENTION}
    torch.ops._C_ascend = types.SimpleNamespace(**sparse)  # type: ignore[attr-defined]
    for name in _ROUTED:
        setattr(torch.cuda, name, getattr(runtime, name))
    profiler = {name: Stub(f"torch_npu.profiler.{name}") for name in _PROFILER}
    built = {
        module.__name__: module
        for module in (
            # Assumption: sglang compares the version with nothing that matters to metadata.
            _module(
                "torch_npu",
                __version__=torch.__version__.partition("+")[0],
                _apply_patches=_apply_patches,
                _apply_all_patches=_apply_patches,
                _autoload=_autoload,
            ),
            _module("torch_npu.atb"),
            _module("torch_npu._C", _weak_ref_tensor=_weak_ref_tensor),
            _module("torch_npu._C._distributed_c10d", ProcessGroupHCCL=ProcessGroupHCCL),
            _module("torch_npu.profiler", ProfilerActivity=ProfilerActivity, **profiler),
            _module("torch_npu.contrib"),
            # Assumption: of what this module's import routes from torch.cuda to torch.npu, no more is needed than
            # `_ROUTED`.
            _module("torch_npu.contrib.transfer_to_npu"),
            _module("torch_npu.multiprocessing"),
            _module("torch_npu.multiprocessing.reductions"),
            _module("acl", rt=types.SimpleNamespace(get_device_info=_get_device_info)),
        )
    }
    built["torch_npu.npu"] = runtime
    for name, module in built.items():
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(built[parent], child, module)
    return built
