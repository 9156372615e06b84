"""Streams and events: queues of device work, run at once unless a script holds them back.

Work of one stream runs in the order of submission. As long as nobody is told to be late (`harness.npu.interleaving`),
it runs when it is submitted, so that all work runs in the order of the program. Work of a late stream waits until it
must be there: until the host synchronises with the stream, or until another stream reaches a wait for one of its
events.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import torch

from harness.npu import fault, synchronisation

Work = Callable[[], None]

#: One at a time: graphs are updated in another thread than they are replayed in.
lock = threading.RLock()
_recorded = threading.Condition(lock)
#: Seconds after which a wait for an event that nobody records is taken for a hang of the device.
PATIENCE = 20.0


class NotRecordedError(Exception):
    """The work at the head of a stream waits for an event that has not been recorded yet."""


class Stream:
    """A queue of device work; entering one as a context makes it the current one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Assumption: the number serves as an identity only.
        self.npu_stream = id(self)
        self.late = False
        self.submitted = 0
        self.finished = 0
        self._queue: deque[Work] = deque()
        self._outer: list[Stream] = []
        _streams.add(self)

    @property
    def is_up_to_date(self) -> bool:
        """Whether work that is submitted now runs at once."""
        return not self.late and self.finished == self.submitted

    def submit(self, work: Work) -> None:
        """Queue `work`; it runs now if this stream is not late."""
        with lock:
            self.submitted += 1
            self._queue.append(work)
            self.advance()

    def advance(self) -> None:
        """Run what is queued as far as it can run, unless this stream is late."""
        with lock:
            if not self.late:
                self._run_to(self.submitted)

    def _run_to(self, ticket: int) -> bool:
        """Run the work up to the `ticket`-th; returns whether all of it could run."""
        while self.finished < ticket:
            work = self._queue[0]
            try:
                fault.refuse_after_fault("the work that a stream has left")
                # What was submitted in inference mode may run outside it, where its tensors could not be changed.
                with torch.inference_mode():
                    work()
            except NotRecordedError:
                return False
            except BaseException:
                self._next()
                raise
            self._next()
        return True

    def _next(self) -> None:
        self._queue.popleft()
        self.finished += 1

    def finish(self, ticket: int | None = None) -> None:
        """Return when the work up to the `ticket`-th, or all of it, is done, as the host does when it synchronises.

        Raises RuntimeError where the work waits for an event that nobody records within `PATIENCE` seconds: a graph
        that is replayed and never updated.
        """
        with lock:
            ticket = self.submitted if ticket is None else ticket
            deadline = time.monotonic() + PATIENCE
            while not self._run_to(ticket):
                if not _recorded.wait(deadline - time.monotonic()):
                    raise RuntimeError(
                        "The device hangs: a stream waits for an event that nobody records. "
                        "Was a graph with host inputs replayed without NPUGraph.update?"
                    )

    def require(self, ticket: int) -> None:
        """Have the work up to the `ticket`-th done before the caller, itself work of another stream, goes on."""
        if not self._run_to(ticket):
            raise NotRecordedError

    def wait_stream(self, stream: "Stream") -> None:
        """Later work of this stream runs after what `stream` has been given so far."""
        Event().record_in(stream).wait(self)

    def wait_event(self, event: "Event") -> None:
        """Later work of this stream runs after `event`."""
        event.wait(self)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record `event`, or a new one."""
        return (event or Event()).record_in(self)

    def synchronize(self) -> None:
        """Wait on the host for all of this stream's work."""
        fault.refuse_after_fault("torch.npu.Stream.synchronize")
        synchronisation.count("torch.npu.Stream.synchronize")
        self.finish()

    def query(self) -> bool:
        """Whether the submitted work is done."""
        return self.finished == self.submitted

    def __enter__(self) -> Self:
        self._outer.append(current_stream())
        set_stream(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_stream(self._outer.pop())


class StreamContext:
    """A context in which `stream` is the current one of the thread; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._outer: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._outer = current_stream()
            set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outer is not None:
            set_stream(self._outer)


class Event:
    """A point in a stream."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._stream: Stream | None = None
        self._ticket = 0
        self._recorded_at = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Let this be the point that `stream`, or the current one, has reached in its submissions."""
        self.record_in(stream or current_stream())

    def record_in(self, stream: Stream) -> Self:
        """`record`, and return this event."""
        self._stream, self._ticket = stream, stream.submitted
        self._recorded_at = time.perf_counter()
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of `stream`, or of the current one, runs after this event, if it has been recorded."""
        waiting, other, ticket = stream or current_stream(), self._stream, self._ticket
        if other is not None and other is not waiting and not self.query():
            waiting.submit(lambda: other.require(ticket))

    def synchronize(self) -> None:
        """Wait on the host for the event, if it has been recorded."""
        fault.refuse_after_fault("torch.npu.Event.synchronize")
        synchronisation.count("torch.npu.Event.synchronize")
        if self._stream is not None:
            self._stream.finish(self._ticket)

    def query(self) -> bool:
        """Whether the work before the event is done."""
        return self._stream is None or self._stream.finished >= self._ticket

    def elapsed_time(self, later: "Event") -> float:
        """Milliseconds of host time between the two records."""
        return (later._recorded_at - self._recorded_at) * 1e3


class ExternalEvent:
    """An event that work waits for before anybody records it, and that the work then resets."""

    def __init__(self) -> None:
        self._is_recorded = False

    def record(self) -> None:
        """Let through the work that waits, in whatever stream it is."""
        with lock:
            self._is_recorded = True
            for stream in list(_streams):
                stream.advance()
            _recorded.notify_all()

    def consume(self) -> None:
        """Work that waits for the event and resets it."""
        if not self._is_recorded:
            raise NotRecordedError
        self._is_recorded = False


_streams: WeakSet[Stream] = WeakSet()
_kept: list[object] = []
_default = Stream()
_current = threading.local()


def current_stream() -> Stream:
    """The stream that work of this thread goes to."""
    stream: Stream = getattr(_current, "stream", _default)
    return stream


def default_stream(device: Any = None) -> Stream:
    """The stream that is current until another one is chosen."""
    return _default


def set_stream(stream: Stream) -> None:
    """Make `stream` the current one of this thread."""
    _current.stream = stream


def synchronize() -> None:
    """Wait on the host for all work of all streams."""
    for stream in list(_streams):
        stream.finish()


def hold_back(streams: "frozenset[Stream] | None", but: "frozenset[Stream]" = frozenset()) -> set[Stream]:
    """Make `streams`, or all of them, late, except `but`; returns those that were not late before."""
    chosen = {stream for stream in _streams if streams is None or stream in streams} - but
    newly = {stream for stream in chosen if not stream.late}
    for stream in newly:
        stream.late = True
    return newly


def release(streams: set[Stream]) -> None:
    """Let `streams` be late no longer, and do what is left of their work."""
    for stream in streams:
        stream.late = False
    for stream in streams:
        stream.advance()
    if not any(stream.late for stream in _streams):
        _kept.clear()


def keep_while_late(value: object) -> None:
    """Hold `value` until no stream is late: what is held back may come to it by other ways than a reference."""
    if any(stream.late for stream in _streams):
        _kept.append(value)
