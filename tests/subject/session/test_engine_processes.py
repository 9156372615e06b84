"""The processes of an engine: what sglang raises in one is told and kills nobody, and none outlives its worker."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.subject.test_template import ends, runs

SCRIPT = Path(__file__).with_name("engine_without_sglang.py")


class Started(NamedTuple):
    """A worker, the processes that it has started, and a reader of the lines that it prints."""

    worker: "subprocess.Popen[str]"
    scheduler: int
    detokenizer: int

    def line(self) -> str:
        assert self.worker.stdout is not None
        return self.worker.stdout.readline()


@pytest.fixture
def start() -> Iterator[Callable[[str], Started]]:
    """Starts a worker whose scheduler fails as it is told to."""
    with ExitStack() as stack:

        def started(fails: str) -> Started:
            worker = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, SCRIPT, fails], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            stack.callback(worker.kill)
            assert worker.stdout is not None
            scheduler, detokenizer = worker.stdout.readline().split()
            made = Started(worker, int(scheduler), int(detokenizer))
            assert "Here" in made.line()
            return made

        yield started


def test_an_error_in_the_event_loop_is_told_and_kills_nobody(start: Callable[[str], Started]) -> None:
    started = start("LOOP")

    assert "507015 in the event loop" in started.line()
    assert started.worker.poll() is None
    assert runs(started.scheduler)


def test_an_error_while_it_starts_is_told_and_ends_the_scheduler_alone(start: Callable[[str], Started]) -> None:
    started = start("START")

    assert "507015 while it starts" in started.line()
    assert started.line() == "the scheduler has ended\n"
    assert started.worker.poll() is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("fails", ["NOTHING", "LOOP"])
def test_no_process_outlives_a_worker_that_is_killed(start: Callable[[str], Started], fails: str) -> None:
    started = start(fails)
    assert runs(started.scheduler) and runs(started.detokenizer)

    started.worker.kill()

    while started.line():  # until nobody is left who could write one
        pass
    assert ends(started.scheduler)
    assert ends(started.detokenizer)
