"""The warm template: it imports sglang once and forks a worker for the scenarios, one for each stage.

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
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module

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
from harness.subject.patch import Patch, apply, foresee
from harness.subject.tracing import Tracer

PR_SET_PDEATHSIG = 1  #: of <sys/prctl.h>

#: Workers that are kept; a worker that serves sessions has a server of its own.
MOST_WORKERS = 3

Driver = Callable[[Observe], Observed]
#: What a worker is for: a stage, and with a patch that patch alone.
_Key = tuple[str, Patch | None]


class _Head(msgspec.Struct, tag="Observe"):
    """The part of an `Observe` that the template needs; the scenarios stay undecoded."""

    limit: float
    stage: str = ""
    patch: Patch | None = None


class _Last(msgspec.Struct, tag="Observed"):
    """The part of an `Observed` that the template needs."""

    last: bool = False
    imported: tuple[str, ...] = ()


class Template:
    """Forks a worker for each stage, which runs the driver that `prepare(stage)` knows how to make.

    `prepare` is called in the template, where it may import but not touch the device; what it returns in the worker.
    """

    def __init__(self, prepare: Callable[[str], Callable[[], Driver]]) -> None:
        self.prepare = prepare
        self.workers: OrderedDict[_Key, _Worker] = OrderedDict()

    def serve(self, requests: int, replies: int) -> None:
        """Answer frames from descriptor `requests` on descriptor `replies` until the other side closes."""
        gc.collect()
        while True:
            try:
                frame = read_frame(requests)
            except ProtocolError:
                self.stop()
                return
            write_frame(replies, self._answer(frame))

    def _answer(self, frame: bytes) -> bytes:
        head = msgspec.msgpack.decode(frame, type=_Head)
        key = (head.stage, head.patch)
        worker = self._worker(key)
        try:
            answer = worker.ask(frame, head.limit)
            told = msgspec.msgpack.decode(answer, type=_Last)
            if told.last:
                self._forget(key)
            if not head.stage:
                _import(told.imported)
            return answer
        except DeadlineError:
            fault = Fault("hang", f"no answer within {head.limit:g} s")
            self._forget(key)
        except (ProtocolError, OSError):
            fault = Fault("crash", worker.how_it_ended())
            self._forget(key)
        return msgspec.msgpack.encode(Observed(fault=fault))

    def _worker(self, key: _Key) -> "_Worker":
        if key not in self.workers:
            while len(self.workers) >= MOST_WORKERS:
                self._forget(next(iter(self.workers)))
            stage, patch = key
            if patch is not None:
                foresee(patch)
            make_driver = self.prepare(stage)
            gc.freeze()
            self.workers[key] = _Worker(make_driver, patch)
        self.workers.move_to_end(key)
        return self.workers[key]

    def _forget(self, key: _Key) -> None:
        self.workers.pop(key).stop()

    def stop(self) -> None:
        """End every worker."""
        for key in list(self.workers):
            self._forget(key)


class _Worker:
    """A forked process, and the connection to it; it leads a group, of what it starts itself."""

    def __init__(self, make_driver: Callable[[], Driver], patch: Patch | None = None) -> None:
        self.connection, there = socket.socketpair()
        self.running = True
        template = os.getpid()
        self.process = os.fork()
        if self.process == 0:
            self.connection.close()
            os.setpgid(0, 0)
            die_with_parent(template)
            try:
                if patch is not None:
                    apply(patch)
                _work(make_driver(), there.fileno())
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        with suppress(OSError):  # the worker may have done it, and may be gone
            os.setpgid(self.process, self.process)
        there.close()

    def ask(self, frame: bytes, limit: float) -> bytes:
        """The answer to `frame`; raises DeadlineError, and ProtocolError or OSError where the worker is no more."""
        descriptor = self.connection.fileno()
        write_frame(descriptor, frame)
        return read_frame(descriptor, limit)

    def how_it_ended(self) -> str:
        """The worker has closed its end: it is dead or dying, or else it is put to an end."""
        for _ in range(50):
            ended, status = os.waitpid(self.process, os.WNOHANG)
            if ended:
                break
            time.sleep(0.01)
        else:
            os.kill(self.process, signal.SIGKILL)
            _, status = os.waitpid(self.process, 0)
        self.running = False
        if os.WIFSIGNALED(status):
            return f"the subject was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"the subject ended with status {os.waitstatus_to_exitcode(status)}"

    def stop(self) -> None:
        """End the worker, unless it has ended, and what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        if self.running:
            os.waitpid(self.process, 0)
        self.connection.close()


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent ends, however that ends; elsewhere a hung one may stay behind.

    `parent` is the process id of the parent; where it has ended already, this process ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _work(driver: Driver, descriptor: int) -> None:
    decoder = msgspec.msgpack.Decoder(Observe)
    encoder = msgspec.msgpack.Encoder()
    while True:
        try:
            frame = read_frame(descriptor)
        except ProtocolError:
            return
        message = decoder.decode(frame)
        before = set(sys.modules) if message.traced or message.patch is not None else None
        answer = _traced(driver, message) if message.traced else driver(message)
        if before is not None:
            imported = tuple(name for name in sys.modules if name not in before)
            answer = msgspec.structs.replace(answer, imported=imported)
        write_frame(descriptor, encoder.encode(answer))


def _import(names: Iterable[str]) -> None:
    """What one worker of a mutation run has imported, the hundreds that are forked behind it need not."""
    for name in names:
        if name not in sys.modules:
            with suppress(Exception):
                import_module(name)


def _traced(driver: Driver, message: Observe) -> Observed:
    with Tracer(message.traced) as tracer:
        answer = driver(message)
    return msgspec.structs.replace(answer, executed=tracer.executed)
