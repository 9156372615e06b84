"""A worker and the scheduler's process of its engine, with a scheduler that fails as it is told to.

`python engine_without_sglang.py START|LOOP|NOTHING` starts `inside.run_scheduler_process` as an engine does, prints the
process id and then what it says, one line each, and waits for the end of stdin.
"""

import functools
import multiprocessing
import os
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from harness.subject.session import inside


class Receiver:
    """Receives nothing."""

    def recv_requests(self) -> list[Any]:
        return []


class Scheduler:
    """Fails while it starts, or in its event loop, or not at all."""

    def __init__(self, fails: str) -> None:
        if fails == "START":
            raise RuntimeError("error code 507015 while it starts")
        self.fails = fails
        self.request_receiver = Receiver()

    def run_event_loop(self) -> None:
        if self.fails == "LOOP":
            raise RuntimeError("error code 507015 in the event loop")
        while True:
            time.sleep(0.01)


def run_scheduler_process(fails: str) -> None:
    """As sglang does: whatever is raised, its parent is killed for it."""
    try:
        Scheduler(fails).run_event_loop()
    except Exception:
        os.kill(os.getppid(), signal.SIGKILL)


def run_detokenizer_process() -> None:
    """Runs for ever."""
    while True:
        time.sleep(0.01)


def stand_in() -> None:
    """Put this module where the functions of `inside` look for those of sglang."""
    for name in ("sglang", "sglang.srt", "sglang.srt.managers"):
        sys.modules[name] = ModuleType(name)
    for name in ("scheduler", "detokenizer_manager"):
        sys.modules[f"sglang.srt.managers.{name}"] = sys.modules[__name__]
        setattr(sys.modules["sglang.srt.managers"], name, sys.modules[__name__])
    inside.Stage = lambda scheduler: SimpleNamespace(watch=lambda event: None)  # type: ignore[assignment,misc]


def watched_scheduler(control: Connection, fails: str) -> None:
    stand_in()
    inside.run_scheduler_process(control, fails)


def watched_detokenizer() -> None:
    stand_in()
    inside.run_detokenizer_process()


def main() -> None:
    """Start both processes, and tell of them."""
    context = multiprocessing.get_context("spawn")
    control, there = context.Pipe()
    scheduler = context.Process(target=functools.partial(watched_scheduler, there), args=(sys.argv[1],))
    detokenizer = context.Process(target=watched_detokenizer)
    scheduler.start()
    detokenizer.start()
    there.close()
    print(scheduler.pid, detokenizer.pid, flush=True)
    while True:
        try:
            print(control.recv_bytes(), flush=True)
        except EOFError:
            break
    scheduler.join()
    print("the scheduler has ended", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
