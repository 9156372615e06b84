"""What the sanitizer costs: its share of the time of the scenarios that it watches, measured where it works."""

import functools
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

clock = time.perf_counter
_stopwatches: list["_Stopwatch"] = []


class Overhead(msgspec.Struct, frozen=True):
    """Seconds of the scenarios that the sanitizer watched, and of these the seconds of the sanitizer itself."""

    watched: float = 0.0
    sanitizer: float = 0.0

    def __add__(self, other: "Overhead") -> "Overhead":
        return Overhead(self.watched + other.watched, self.sanitizer + other.sanitizer)

    @property
    def added(self) -> float:
        """What the sanitizer adds, as a fraction of the time without it."""
        without = self.watched - self.sanitizer
        return self.sanitizer / without if without > 0 else 0.0


class _Stopwatch:
    def __init__(self) -> None:
        self.seconds = 0.0


def timed(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Mark a function as the sanitizer's; marked functions do not call one another."""

    @functools.wraps(work)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        start = clock()
        try:
            return work(*args, **kwargs)
        finally:
            for stopwatch in _stopwatches:
                stopwatch.seconds += clock() - start

    return run


def measured(work: Callable[[], Result]) -> tuple[Result, Overhead]:
    """The result of `work`, and what the sanitizer cost in it: nothing where it had nothing to watch."""
    stopwatch, start = _Stopwatch(), clock()
    _stopwatches.append(stopwatch)
    try:
        result = work()
    finally:
        _stopwatches.remove(stopwatch)
    return result, Overhead(clock() - start, stopwatch.seconds) if stopwatch.seconds else Overhead()
