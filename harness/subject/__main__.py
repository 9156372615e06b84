"""`python -m harness.subject PATH DEVICE`: the subject's process; see `frames.py` for what it speaks."""

import os
import sys
from collections.abc import Callable

import msgspec

from harness.scenario.observation import Fault
from harness.subject.cuda.prepare import DEVICES as CUDA_DEVICES
from harness.subject.frames import Hello, SubjectInfo, write_frame
from harness.subject.template import Driver, Template

#: What was found, and how a worker for a stage is made.
Ready = tuple[SubjectInfo, Callable[[str], Callable[[], Driver]]]


def main() -> None:
    """Import the sglang in PATH, say hello, and serve; nothing but frames reaches the real stdout."""
    path, device = sys.argv[1:3]
    replies = os.dup(1)
    os.dup2(2, 1)
    ready = _cuda if device in CUDA_DEVICES else _ascend
    try:
        info, prepared = ready(path, device)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        write_frame(replies, msgspec.msgpack.encode(Hello(fault=Fault("driver", reason))))
        raise
    write_frame(replies, msgspec.msgpack.encode(Hello(info=info)))
    Template(prepared).serve(0, replies)


def _ascend(path: str, device: str) -> Ready:
    from harness.subject.ascend import driver as ascend

    info = ascend.prepare(path, device)

    def prepared(stage: str) -> Callable[[], Driver]:
        if not stage:
            return lambda: ascend.Driver(info).observe
        from harness.subject.session import driver as session

        session.prepare()
        return lambda: session.SessionDriver().observe

    return info, prepared


def _cuda(path: str, device: str) -> Ready:
    from harness.subject.cuda import prepare as cuda

    info = cuda.prepare(path, device)

    def make() -> Driver:
        if cuda.DEVICES[device].gpu:
            cuda.imported(path, device)
        from harness.subject.cuda.driver import Driver as CudaDriver

        return CudaDriver(info).observe

    return info, lambda stage: make


if __name__ == "__main__":
    main()
