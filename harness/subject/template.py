"""The warm template: it imports sglang once and forks a worker for the scenarios.

The worker does the work; the template passes frames through and watches. A worker that crashes or hangs is an
observation (`Fault`), and the next worker is forked in milliseconds instead of the ten seconds of an import.
Forking is safe because the template never touches the device: it imports, and that is all.
"""

import ctypes
import gc
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable

import msgspec

from harness.scenario.observation import Fault
from harness.subject.frames import (
    DeadlineError,
    Observe,
    Observed,
    ProtocolError,
    read_frame,
    write_frame,
)

PR_SET_PDEATHSIG = 1  #: of <sys/prctl.h>

Driver = Callable[[Observe], Observed]


class _FrameLimit(msgspec.Struct, tag="Observe"):
    """The part of an `Observe` that the template needs; the scenarios stay undecoded."""

    limit: float


class _Last(msgspec.Struct, tag="Observed"):
    """The part of an `Observed` that the template needs."""

    last: bool = False


class Template:
    """Forks workers that run `driver`, one at a time."""

    def __init__(self, make_driver: Callable[[], Driver]) -> None:
        self.make_driver = make_driver
        self.worker = 0
        self.connection: socket.socket | None = None

    def serve(self, requests: int, replies: int) -> None:
        """Answer frames from descriptor `requests` on descriptor `replies` until the other side closes."""
        gc.collect()
        gc.freeze()
        while True:
            try:
                frame = read_frame(requests)
            except ProtocolError:
                self.stop()
                return
            write_frame(replies, self._answer(frame))

    def _answer(self, frame: bytes) -> bytes:
        limit = msgspec.msgpack.decode(frame, type=_FrameLimit).limit
        if self.connection is None:
            self._fork()
        assert self.connection is not None
        descriptor = self.connection.fileno()
        try:
            write_frame(descriptor, frame)
            answer = read_frame(descriptor, limit)
            if msgspec.msgpack.decode(answer, type=_Last).last:
                self.stop()
            return answer
        except DeadlineError:
            fault = Fault("hang", f"no answer within {limit:g} s")
            self.stop()
        except (ProtocolError, OSError):
            fault = Fault("crash", self._how_it_ended())
        return msgspec.msgpack.encode(Observed(fault=fault))

    def _fork(self) -> None:
        here, there = socket.socketpair()
        self.worker = os.fork()
        if self.worker == 0:
            here.close()
            _die_with_parent()
            try:
                _work(self.make_driver(), there.fileno())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        there.close()
        self.connection = here

    def _how_it_ended(self) -> str:
        """The worker has closed its end: it is dead or dying, or else it is put to an end."""
        for _ in range(50):
            ended, status = os.waitpid(self.worker, os.WNOHANG)
            if ended:
                break
            time.sleep(0.01)
        else:
            os.kill(self.worker, signal.SIGKILL)
            _, status = os.waitpid(self.worker, 0)
        self._forget()
        if os.WIFSIGNALED(status):
            return f"the subject was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"the subject ended with status {os.waitstatus_to_exitcode(status)}"

    def stop(self) -> None:
        """End the worker, if there is one."""
        if self.connection is not None:
            os.kill(self.worker, signal.SIGKILL)
            os.waitpid(self.worker, 0)
            self._forget()

    def _forget(self) -> None:
        assert self.connection is not None
        self.connection.close()
        self.connection = None


def _die_with_parent() -> None:
    """Have Linux kill this worker when its template ends, however that ends; elsewhere a hung one may stay behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _work(driver: Driver, descriptor: int) -> None:
    decoder = msgspec.msgpack.Decoder(Observe)
    encoder = msgspec.msgpack.Encoder()
    while True:
        try:
            frame = read_frame(descriptor)
        except ProtocolError:
            return
        write_frame(descriptor, encoder.encode(driver(decoder.decode(frame))))
