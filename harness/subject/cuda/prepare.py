"""Getting the process ready: sglang is imported, and the subject says on which device it runs."""

import logging
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple, get_args

import msgspec

from harness.scenario.metadata import Algorithm
from harness.scenario.observation import Fault
from harness.subject.device_driver import of_gpu
from harness.subject.frames import Hello, ProtocolError, SubjectInfo, read_frame, write_frame

#: The device of a subject whose kernels Triton interprets on the CPU; a GPU's is `cuda:` and its name.
INTERPRETED = "triton-interpreter"
#: The device of a subject whose FlashAttention 3 is emulated on the CPU, where Triton interprets what prepares it.
FA3_EMULATED = "fa3-emulated"
#: The same for FlashInfer.
FLASHINFER_EMULATED = "flashinfer-emulated"
#: The subject that runs a backend without a GPU.
ON_CPU = {"triton": "triton", "fa3": FA3_EMULATED, "flashinfer": FLASHINFER_EMULATED}


class Device(NamedTuple):
    """Which of sglang's backends runs, and whether on a GPU or on the CPU."""

    backend: str
    gpu: bool

    @property
    def dtype(self) -> str:
        """What it computes in: the vendors' kernels know no float32; float16 has more digits than bfloat16."""
        return "float16" if self in (FA3, FLASHINFER) else "float32"


FA3 = Device("fa3", gpu=True)
FLASHINFER = Device("flashinfer", gpu=True)
DEVICES = {
    INTERPRETED: Device("triton", gpu=False),
    "cuda": Device("triton", gpu=True),
    FA3_EMULATED: Device("fa3", gpu=False),
    "fa3": FA3,
    FLASHINFER_EMULATED: Device("flashinfer", gpu=False),
    "flashinfer": FLASHINFER,
}
#: The devices of subjects that need no GPU: processes like any other, whose kernels take their time.
INTERPRETING = frozenset(name for name, device in DEVICES.items() if not device.gpu)


def prepare(path: str, device: str) -> SubjectInfo:
    """Make ready to fork workers for the sglang in `path` on `device`, and say what was found.

    Importing sglang touches a GPU (it asks for its capability), after which nothing may be forked that uses it. So
    there each worker imports by itself, and a child that ends says what it found.
    """
    if not DEVICES[device].gpu:
        return imported(path, device)
    return in_child(lambda: imported(path, device))


def imported(path: str, device: str) -> SubjectInfo:
    """Import the sglang in `path` for `device`; raises RuntimeError for a GPU's where it cannot run here."""
    logging.disable(logging.WARNING)
    backend, gpu = DEVICES[device]
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is decorated
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # or sglang would take a GPU's code where there is one
    import torch
    import triton

    from harness.npu import vision
    from harness.subject.cuda.backends import BACKENDS
    from harness.subject.cuda.vendors import VENDORS

    if gpu and not torch.cuda.is_available():
        raise RuntimeError(
            f"torch sees no CUDA GPU here: record where there is one, or use the subject {ON_CPU[backend]}"
        )
    vendor = VENDORS.get(backend)
    if vendor is not None:
        (vendor.require if gpu else vendor.emulate)()
    vision.activate()
    module = import_module(BACKENDS[backend].module)
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    if path and not os.path.realpath(str(module.__file__)).startswith(os.path.realpath(path)):
        raise ImportError(f"sglang came from {module.__file__}, not from {path}")
    if vendor is not None and not gpu:
        vendor.allow()
    versions = {"python": sys.version.split()[0], "torch": str(torch.__version__), "triton": str(triton.__version__)}
    if vendor is not None:
        versions[vendor.package] = vendor.installed() if gpu else "emulated"
    name = device
    if gpu:
        name = f"cuda:{torch.cuda.get_device_name()}"
        versions |= {"cuda": str(torch.version.cuda), **of_gpu()}
    known = set(SpeculativeAlgorithm.__members__) & set(get_args(Algorithm)) - {"NONE"}
    return SubjectInfo(backend, "", name, versions, tuple(sorted(known)), dtype=DEVICES[device].dtype)


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
