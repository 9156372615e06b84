"""A session played on a worker: what the device raises is its error, also where it comes after the last turn."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from harness.npu import fault
from harness.npu.stream import Stream
from harness.scenario import SessionScenario
from harness.scenario.session import Visit
from harness.subject.session.play import WorkerPlayer
from harness.subject.session.stage import Over

LATE = SessionScenario("DFLASH", (Visit(8, 2),), "eager", streams="late")


@pytest.fixture(autouse=True)
def device_is_back() -> Iterator[None]:
    yield
    fault.reset()


def player(stream: Stream, *work) -> WorkerPlayer:
    """A player whose scheduler gives `work` to the stream and is done."""

    def run_event_loop() -> None:
        for one in work:
            stream.submit(one)
        raise Over

    made = object.__new__(WorkerPlayer)
    made.broken = False
    made.scheduler = SimpleNamespace(run_event_loop=run_event_loop, flush_cache=lambda: True)
    made.stage = SimpleNamespace(begin=lambda scenario: None, watch=SimpleNamespace(), seen=lambda error: error)
    return made


def test_what_late_work_raises_after_the_last_turn_is_the_error_of_the_session() -> None:
    played = player(Stream(), lambda: fault.fail("npu_scatter", "page 9 of 4"))

    assert "error code 507015" in played.play(LATE)
    assert played.broken


def test_late_work_that_raises_nothing_is_no_error() -> None:
    done: list[int] = []
    played = player(Stream(), lambda: done.append(1))

    assert (played.play(LATE), played.broken, done) == ("", False, [1])
