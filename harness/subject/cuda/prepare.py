"""Getting the process ready: sglang is imported, and the subject says on which device it runs."""

import logging
import os
import sys
from collections.abc import Callable
from typing import get_args

import msgspec

from harness.scenario.metadata import Algorithm
from harness.scenario.observation import Fault
from harness.subject.frames import Hello, ProtocolError, SubjectInfo, read_frame, write_frame

#: The device of a subject whose kernels Triton interprets on the CPU; a GPU's is `cuda:` and its name.
INTERPRETED = "triton-interpreter"
DEVICES = (INTERPRETED, "cuda")


def prepare(path: str, device: str) -> SubjectInfo:
    """Make ready to fork workers for the sglang in `path` on `device`, and say what was found.

    Importing sglang touches a GPU (it asks for its capability), after which nothing may be forked that uses it. So
    there each worker imports by itself, and a child that ends says what it found.
    """
    if device == INTERPRETED:
        return imported(path, device)
    return in_child(lambda: imported(path, device))


def imported(path: str, device: str) -> SubjectInfo:
    """Import the sglang in `path` for `device`; raises RuntimeError for `cuda` where torch sees no GPU."""
    logging.disable(logging.WARNING)
    if device == INTERPRETED:
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated
    import torch
    import triton

    from harness.npu import vision

    if device != INTERPRETED and not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA GPU here: record where there is one, or use the subject triton")
    vision.activate()
    from sglang.srt.layers.attention import triton_backend
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    if path and not os.path.realpath(triton_backend.__file__).startswith(os.path.realpath(path)):
        raise ImportError(f"sglang came from {triton_backend.__file__}, not from {path}")
    versions = {"python": sys.version.split()[0], "torch": str(torch.__version__), "triton": str(triton.__version__)}
    if device != INTERPRETED:
        device = f"cuda:{torch.cuda.get_device_name()}"
        versions["cuda"] = str(torch.version.cuda)
    known = set(SpeculativeAlgorithm.__members__) & set(get_args(Algorithm)) - {"NONE"}
    return SubjectInfo("triton", "", device, versions, tuple(sorted(known)))


def in_child(look: Callable[[], SubjectInfo]) -> SubjectInfo:
    """What `look` finds in a process of its own, which ends afterwards; raises RuntimeError with what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            found = Hello(info=look())
        except Exception as error:
            found = Hello(fault=Fault("driver", f"{error}"))
        write_frame(writing, msgspec.msgpack.encode(found))
        os._exit(0)
    os.close(writing)
    try:
        answer = msgspec.msgpack.decode(read_frame(reading), type=Hello)
    except ProtocolError as error:
        raise RuntimeError("the process that imports sglang died") from error
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    if answer.info is None:
        raise RuntimeError(answer.fault.reason if answer.fault else "the process that imports sglang said nothing")
    return answer.info
