"""What the sanitizer costs, by a clock that the test turns."""

from collections.abc import Iterator

import pytest

from harness.shadow import overhead as module
from harness.shadow.overhead import Overhead, measured, timed
from harness.shadow.record import Shadow
from tests.shadow.pool import read, two_requests


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    turned = Clock()
    monkeypatch.setattr(module, "clock", turned)
    yield turned


def test_the_time_of_the_sanitizer_is_told_apart_from_the_rest(clock: Clock) -> None:
    sanitizer = timed(clock.passes)

    def work() -> str:
        clock.passes(3.0)
        sanitizer(0.25)
        sanitizer(0.75)
        return "done"

    assert measured(work) == ("done", Overhead(watched=4.0, sanitizer=1.0))


def test_work_that_is_not_watched_does_not_count(clock: Clock) -> None:
    assert measured(lambda: clock.passes(3.0)) == (None, Overhead())


def test_time_counts_although_the_sanitizer_raises(clock: Clock) -> None:
    @timed
    def refuse() -> None:
        clock.passes(2.0)
        raise ValueError("no such row")

    def work() -> None:
        with pytest.raises(ValueError, match="no such row"):
            refuse()

    assert measured(work)[1] == Overhead(2.0, 2.0)


def test_costs_add_up_to_what_was_added() -> None:
    both = Overhead(10.0, 1.0) + Overhead(2.0, 1.0)

    assert both == Overhead(12.0, 2.0)
    assert both.added == 0.2
    assert Overhead().added == 0.0


def test_everything_that_a_record_is_asked_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr(module, "clock", lambda: float(next(ticks)))
    shadow = two_requests()
    asked = [
        lambda: Shadow(4, 16).reserve(1, [1]),
        lambda: shadow.begin_step([3, 5], [200, 140]),
        lambda: shadow.wrote([130]),
        lambda: shadow.check(read(shadow, [[1, 2], [1, 3]], [200, 140])),
        lambda: shadow.free(5),
    ]
    assert [measured(work)[1].sanitizer for work in asked] == [1.0] * len(asked)
