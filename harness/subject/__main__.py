"""`python -m harness.subject PATH DEVICE`: the subject's process; see `frames.py` for what it speaks."""

import os
import sys
from collections.abc import Callable

import msgspec

from harness.scenario.observation import Fault
from harness.subject.frames import Hello, write_frame
from harness.subject.template import Driver, Template


def main() -> None:
    """Import the sglang in PATH, say hello, and serve; nothing but frames reaches the real stdout."""
    path, device = sys.argv[1:3]
    replies = os.dup(1)
    os.dup2(2, 1)
    try:
        from harness.subject.ascend import driver as ascend

        info = ascend.prepare(path, device)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        write_frame(replies, msgspec.msgpack.encode(Hello(fault=Fault("driver", reason))))
        raise
    write_frame(replies, msgspec.msgpack.encode(Hello(info=info)))

    def prepared(stage: str) -> Callable[[], Driver]:
        if not stage:
            return lambda: ascend.Driver(info).observe
        from harness.subject.session import driver as session

        session.prepare()
        return lambda: session.SessionDriver().observe

    Template(prepared).serve(0, replies)


if __name__ == "__main__":
    main()
