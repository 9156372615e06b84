"""The module ``torch.npu``, also importable as ``torch_npu.npu``: device, stream and memory queries.

There is one device. What is not emulated is absent, so that `hasattr` tells the truth.
"""

import contextlib
import types
from typing import Any

import torch

from harness.npu import fault, synchronisation
from harness.npu import stream as streams
from harness.npu.graph import NPUGraph, capturing, graph, graph_pool_handle
from harness.npu.stream import Event, ExternalEvent, Stream, StreamContext, default_stream, set_stream

__all__ = [
    "Event",
    "ExternalEvent",
    "NPUGraph",
    "Stream",
    "StreamContext",
    "default_stream",
    "graph",
    "graph_pool_handle",
    "set_stream",
]

# Assumption: only start-up heuristics (batch and cache sizes) read these; small, to suit a test machine.
_MEMORY_BYTES = 4 << 30
_CUBE_CORES, _VECTOR_CORES = 24, 48
_NAME = "Ascend910B (emulated)"

config = types.SimpleNamespace(allow_internal_format=False)


def is_available() -> bool:
    """There is a device."""
    return True


def is_initialized() -> bool:
    """The device needs no initialisation."""
    return True


def _is_in_bad_fork() -> bool:
    """A forked child can go on using the device; torch asks when it seeds."""
    return False


def _lazy_init() -> None:
    """Nothing to initialise; torch asks when it moves a module to the device."""


def device_count() -> int:
    """There is one device."""
    return 1


def current_device() -> int:
    """The index of the only device."""
    return 0


def set_device(device: Any) -> None:
    """The only device is always the current one."""


def device(device: Any) -> contextlib.AbstractContextManager[None]:
    """A context in which `device` is the current one, as it always is."""
    return contextlib.nullcontext()


def get_device_name(device: Any = None) -> str:
    """A name that says what this is."""
    return _NAME


def get_device_capability(device: Any = None) -> None:
    """None, as torch_npu 2.14.0 answers where TORCH_NPU_DEVICE_CAPABILITY is not set."""


def get_device_properties(device: Any = None) -> types.SimpleNamespace:
    """The few properties that sglang reads."""
    return types.SimpleNamespace(
        name=_NAME,
        total_memory=_MEMORY_BYTES,
        multi_processor_count=_CUBE_CORES,
        cube_core_num=_CUBE_CORES,
        vector_core_num=_VECTOR_CORES,
    )


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes; use is not counted, so all of it is always free."""
    return (_MEMORY_BYTES, _MEMORY_BYTES)


def memory_allocated(device: Any = None) -> int:
    """Use is not counted."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """Use is not counted."""
    return 0


def empty_cache() -> None:
    """There is no cache."""


def synchronize(device: Any = None) -> None:
    """Wait on the host for all submitted work."""
    fault.refuse_after_fault("torch.npu.synchronize")
    synchronisation.count("torch.npu.synchronize")
    streams.synchronize()


def current_stream(device: Any = None) -> Stream:
    """The stream that work of this thread goes to."""
    return streams.current_stream()


def stream(stream: Stream | None) -> StreamContext:
    """A context that submits work to `stream`."""
    return StreamContext(stream)


def set_stream_limit(stream: Stream, cube_cores: int = -1, vector_cores: int = -1) -> None:
    """A limit on cores changes speed only."""


def set_compile_mode(jit_compile: bool = False) -> None:
    """How operators are compiled changes speed only."""


def is_current_stream_capturing() -> bool:
    """Whether work is recorded instead of run."""
    return capturing() is not None


def manual_seed(seed: int) -> None:
    """Seeded already: the device draws from the CPU's generator."""


def manual_seed_all(seed: int) -> None:
    """Seeded already: the device draws from the CPU's generator."""


def get_rng_state(device: Any = None) -> torch.Tensor:
    """The state of the CPU's generator, from which the device draws."""
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    """Set the state of the CPU's generator, from which the device draws."""
    torch.set_rng_state(state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The types that `torch.autocast("npu")` accepts."""
    return [torch.float16, torch.bfloat16]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"torch.npu.{name} is not emulated (see harness/npu/runtime.py)")
