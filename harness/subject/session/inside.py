"""Inside the processes that an engine starts: what `sglang.Engine` is given to run there.

The scheduler's process runs sglang's own `run_scheduler_process`. Its event loop is its own, too; where that asks for
requests, the real `recv_requests` gets them from the tokenizer, and those of a session are held until their turn. So
turns are exact, however fast the processes are.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from harness.npu import is_installed
from harness.npu.boundary import listening
from harness.npu.presence import EMULATE
from harness.scenario.observation import SessionSeen
from harness.subject.blame import out_of_memory, sglang_error, where
from harness.subject.session.server import Failed, carrying
from harness.subject.session.stage import Over, Stage
from harness.subject.session.words import Begin, Gathered, Here, Played
from harness.subject.template import die_with_parent

#: Seconds between two looks at whether something has come.
PAUSE = 0.01
#: Seconds in which what the tokenizer has sent must have come, thousands of times what it takes.
ARRIVAL_LIMIT = 60.0


def run_scheduler_process(control: Connection, *args: Any, **kwargs: Any) -> None:
    """sglang's function of this name, watched. What it raises goes to `control`, and not to sglang, which kills all."""
    _end_with_worker()
    control.send_bytes(msgspec.msgpack.encode(Here()))
    from sglang.srt.managers import scheduler as module

    feeder: Feeder | None = None

    def serve(scheduler: Any) -> None:
        nonlocal feeder
        feeder = Feeder(Stage(scheduler), control)
        feeder.stand_before(type(scheduler.request_receiver))
        with listening(feeder.stage.watch):
            run(scheduler)

    run = module.Scheduler.run_event_loop
    module.Scheduler.run_event_loop = carrying(serve)
    module.Scheduler.__init__ = carrying(module.Scheduler.__init__)
    try:
        if os.environ.get(EMULATE) == "1" and not is_installed():
            raise RuntimeError("the emulated NPU is not here: install the harness, whose entry point brings it along")
        module.run_scheduler_process(*args, **kwargs)
    except (Failed, Exception) as failure:
        error = failure.error if isinstance(failure, Failed) else failure
        control.send_bytes(msgspec.msgpack.encode(told(error, feeder)))
        if feeder is not None:
            _wait_for_the_end(control)


def run_detokenizer_process(*args: Any, **kwargs: Any) -> None:
    """sglang's function of this name, in a process that ends with its engine."""
    _end_with_worker()
    from sglang.srt.managers import detokenizer_manager

    detokenizer_manager.run_detokenizer_process(*args, **kwargs)


class Feeder:
    """Holds what the tokenizer sends of a session, and hands it to the event loop at its turn."""

    def __init__(self, stage: Stage, control: Connection) -> None:
        self.stage = stage
        self.control = control
        self.playing = False
        self._ending = False
        self._requests: dict[str, Any] = {}
        self._aborts: dict[str, Any] = {}
        self._others: list[Any] = []

    def stand_before(self, receiver_class: Any) -> None:
        """Have every `recv_requests` of the class go through this feeder."""
        receive = receiver_class.recv_requests

        def fed(receiver: Any, *args: Any, **kwargs: Any) -> list[Any]:
            return self.turn(lambda: receive(receiver, *args, **kwargs))

        receiver_class.recv_requests = fed

    def turn(self, receive: Callable[[], list[Any]]) -> list[Any]:
        """What the event loop gets at this turn; `receive` asks the tokenizer."""
        self._take(receive)
        due = self._due(receive)
        others, self._others = self._others, []
        return others + due

    def _due(self, receive: Callable[[], list[Any]]) -> list[Any]:
        if not self.playing and not self._wait(receive):
            return []
        if self._ending:
            self._end()
            return []
        try:
            come, gone = self.stage.due()
        except Over:
            # At a turn without requests sglang looks after its pools: what it says then is of this session.
            self._ending = not self.stage.stalled
            if self.stage.stalled:
                self._end()
            return []
        held = [self._requests.pop(str(number), None) for number in come]
        held += [self._aborts.pop(str(number), None) for number in gone]
        return [message for message in held if message is not None]

    def _wait(self, receive: Callable[[], list[Any]]) -> bool:
        """Wait for a session, and begin it; without one where something else has come (to flush the cache).

        An event loop without requests takes a processor for itself.
        """
        while not self._others:
            if self.control.poll(PAUSE):
                self._begin(receive)
                return True
            self._take(receive)
        return False

    def _begin(self, receive: Callable[[], list[Any]]) -> None:
        begin = msgspec.msgpack.decode(self.control.recv_bytes(), type=Begin)
        self.stage.begin(begin.scenario)
        self.playing, self._ending = True, False
        expected = {str(number) for number in range(len(begin.scenario.visits)) if number not in begin.refused}
        aborted = {rid for rid in expected if begin.scenario.visits[int(rid)].aborted}
        self._gather(self._requests, expected, receive)
        self.control.send_bytes(msgspec.msgpack.encode(Gathered()))
        self._gather(self._aborts, aborted, receive)

    def _gather(self, held: dict[str, Any], expected: set[str], receive: Callable[[], list[Any]]) -> None:
        deadline = time.monotonic() + ARRIVAL_LIMIT
        while not expected <= held.keys():
            if time.monotonic() > deadline:
                missing = ", ".join(sorted(expected - held.keys()))
                raise RuntimeError(f"the tokenizer has not sent what belongs to the requests {missing}")
            self._take(receive)
            time.sleep(PAUSE)

    def _take(self, receive: Callable[[], list[Any]]) -> None:
        for message in receive():
            kind = type(message).__name__
            if kind == "TokenizedGenerateReqInput":
                self._requests[message.rid] = message
            elif kind == "AbortReq" and message.rid:
                self._aborts[message.rid] = message
            else:
                self._others.append(message)

    def _end(self) -> None:
        self.playing = False
        self._requests.clear()
        self._aborts.clear()
        self.control.send_bytes(msgspec.msgpack.encode(Played(self.stage.seen(), self.stage.stalled)))


def told(error: Exception, feeder: Feeder | None) -> Played:
    """What is said of an `error` that ends the scheduler; memory that runs out ends the process, and is not said."""
    if out_of_memory(error):
        raise error
    fault = ""
    try:
        message = sglang_error(error)
    except Exception:
        message, fault = "", f"{type(error).__name__}: {error} ({where(error)})"
    seen = feeder.stage.seen(message) if feeder is not None and feeder.playing else SessionSeen(0, error=message)
    return Played(seen, last=True, fault=fault)


def _end_with_worker() -> None:
    worker = multiprocessing.parent_process()
    assert worker is not None and worker.pid is not None, "this runs in a process that an engine has started"
    die_with_parent(worker.pid)


def _wait_for_the_end(control: Connection) -> None:
    """Stay until the worker is no more: sglang takes a scheduler that ends for a reason to kill the worker."""
    try:
        control.recv_bytes()
    except EOFError:
        return
