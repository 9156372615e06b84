"""Makes the NPU's Python packages importable in this process, without files on the module path."""

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from harness.npu import (
    activation,
    cache_writes,
    compiler,
    draft_sampling,
    draft_tree,
    fused_attention,
    kernels,
    modules,
    normalization,
    paged_attention,
    partial_attention,
    products,
    rotary,
    sink_attention,
)
from harness.npu.registry import lookup

# The rooms that register emulations of what is in these packages: they must be loaded before `lookup` is
# asked.
_ROOMS = (
    activation,
    cache_writes,
    compiler,
    draft_sampling,
    draft_tree,
    fused_attention,
    kernels,
    normalization,
    paged_attention,
    partial_attention,
    products,
    rotary,
    sink_attention,
)
_STUBBED = ("sgl_kernel_npu", "torchair", "triton.language.extra.cann")


class _StubModule(types.ModuleType):
    """A module that has every attribute: what is registered under its name, else a stub."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lookup(f"{self.__name__}.{name}")


def _is_stubbed(name: str) -> bool:
    return any(name == root or name.startswith(f"{root}.") for root in _STUBBED)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if _is_stubbed(fullname):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _StubModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """A stub module has no body."""


def activate() -> None:
    """Put the emulated modules into `sys.modules`, and the finder of stub modules before all others."""
    sys.modules.update(modules.build())
    # First, so that an installed sgl_kernel_npu or torchair, which need a real device, is not found.
    sys.meta_path.insert(0, _Finder())
