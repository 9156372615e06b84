"""`python -m harness.subject PATH DEVICE`: the subject's process; see `frames.py` for what it speaks."""

import os
import sys

import msgspec

from harness.scenario.observation import Fault
from harness.subject.frames import Hello, write_frame
from harness.subject.template import Template


def main() -> None:
    """Import the sglang in PATH, say hello, and serve; nothing but frames reaches the real stdout."""
    path, device = sys.argv[1:3]
    replies = os.dup(1)
    os.dup2(2, 1)
    try:
        from harness.subject.ascend.driver import Driver, prepare

        info = prepare(path, device)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        write_frame(replies, msgspec.msgpack.encode(Hello(fault=Fault("driver", reason))))
        raise
    write_frame(replies, msgspec.msgpack.encode(Hello(info=info)))
    Template(lambda: Driver(info).observe).serve(0, replies)


if __name__ == "__main__":
    main()
