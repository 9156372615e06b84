"""Streams and events of the emulated NPU."""

import time
from types import TracebackType
from typing import Any, Self


class Event:
    """A point in a stream, which has always been reached."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._recorded_at = 0.0

    def record(self, stream: "Stream | None" = None) -> None:
        """Note the time, for `elapsed_time`."""
        self._recorded_at = time.perf_counter()

    def wait(self, stream: "Stream | None" = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether the work before the event is done."""
        return True

    def elapsed_time(self, later: "Event") -> float:
        """Milliseconds of host time between the two records."""
        return (later._recorded_at - self._recorded_at) * 1e3


class Stream:
    """A queue of device work, which is done as soon as it is submitted.

    Entering one as a context has no effect: work of all streams runs in the order of the program.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Assumption: the number serves as an identity only.
        self.npu_stream = id(self)

    def wait_stream(self, stream: "Stream") -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event`, or a new one."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """Whether the submitted work is done."""
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None
