"""The template and its workers, spoken to in frames: what happens to a worker is told, and the next one answers."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.scenario import GateScenario, Scenario, SessionScenario
from harness.scenario.observation import Observation
from harness.scenario.session import Visit
from harness.subject.frames import PREFIX, Hello, Observe, Observed, read_frame, stage_of, write_frame
from harness.subject.patch import Patch
from harness.subject.template import MOST_WORKERS
from tests.subject.fake_subject import COMMAND, SESSIONS, Misdeed, Question, fatal, scenario

ENOUGH = 60.0  #: seconds for an honest answer
HONEST = GateScenario("npu")


class Served:
    """A fake subject with its template, and the pipes to it."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "PATH", "emulated"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.requests = self.process.stdin.fileno()
        self.replies = self.process.stdout.fileno()
        self.hello = msgspec.msgpack.decode(read_frame(self.replies, ENOUGH), type=Hello)

    def observe(self, *scenarios: Scenario, limit: float = ENOUGH, patience: float = ENOUGH) -> Observed:
        """What the template answers within `limit` and a little `patience`."""
        stage = stage_of(scenarios[0])
        write_frame(self.requests, msgspec.msgpack.encode(Observe(limit, scenarios, stage)))
        return msgspec.msgpack.decode(read_frame(self.replies, limit + patience), type=Observed)

    def patched(self, patch: Patch, question: Question) -> str:
        """What a worker with `patch` tells."""
        write_frame(self.requests, msgspec.msgpack.encode(Observe(ENOUGH, (scenario(question),), patch=patch)))
        (answer,) = msgspec.msgpack.decode(read_frame(self.replies, ENOUGH), type=Observed).observations
        return answer.verdict

    def ask(self, question: Question) -> int:
        """The process id that the worker tells."""
        (answer,) = self.observe(scenario(question)).observations
        return int(answer.verdict)

    def server_of(self, session: SessionScenario) -> int:
        """The process id of the worker that answers this session."""
        (answer,) = self.observe(session).observations
        return int(answer.verdict)

    def close(self) -> bytes:
        """Close the requests, and return what the subject had said on stderr when it ended."""
        with suppress(OSError):
            _, stderr = self.process.communicate(timeout=ENOUGH)
        return stderr

    def end(self) -> None:
        """End the template whatever it does."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A template that all tests share: no misdeed of a worker ends it."""
    subject = Served()
    yield subject
    subject.end()


@pytest.fixture
def own() -> Iterator[Served]:
    """A template of the test's own, to be ended."""
    subject = Served()
    yield subject
    subject.end()


def runs(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def ends(process: int) -> bool:
    """Whether a process ends, now or soon."""
    deadline = time.monotonic() + 10.0
    while runs(process) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(process)


def accepted(answer: Observed) -> bool:
    """Whether an honest scenario was answered honestly."""
    return answer == Observed((Observation(verdict="accepted"),))


def test_one_worker_answers_one_frame_after_the_other(served: Served) -> None:
    assert served.ask(Question.WORKER) == served.ask(Question.WORKER)


def test_what_one_patched_worker_has_imported_is_there_for_the_next(own: Served) -> None:
    patches = [Patch("textwrap.py", "dedent", f"def dedent(text):\n    return {number}\n") for number in range(2)]

    assert [own.patched(patch, Question.IMPORTED) for patch in patches] == ["False", "True"]


def test_the_worker_is_a_child_of_the_template(served: Served) -> None:
    assert served.ask(Question.TEMPLATE) == served.process.pid
    assert served.ask(Question.WORKER) != served.process.pid


@pytest.mark.parametrize(
    ("misdeed", "reason"),
    [
        (Misdeed.KILLED, "the subject was killed by SIGKILL"),
        (Misdeed.EXITS, "the subject ended with status 7"),
        (Misdeed.RAISES, "the subject ended with status 1"),
    ],
)
def test_a_worker_that_ends_is_a_crash(served: Served, misdeed: Misdeed, reason: str) -> None:
    fault = served.observe(scenario(misdeed)).fault
    assert fault is not None
    assert (fault.cause, fault.reason) == ("crash", reason)


def test_a_crash_is_answered_for_the_whole_frame(served: Served) -> None:
    answer = served.observe(HONEST, scenario(Misdeed.KILLED), HONEST)
    assert answer.observations == ()
    assert answer.fault is not None


def test_a_fresh_worker_of_the_same_template_answers_after_a_crash(served: Served) -> None:
    before = served.ask(Question.WORKER)
    served.observe(scenario(Misdeed.KILLED))
    assert served.ask(Question.WORKER) != before
    assert served.ask(Question.TEMPLATE) == served.process.pid


def test_every_crash_is_followed_by_a_fresh_worker(served: Served) -> None:
    for misdeed in (Misdeed.EXITS, Misdeed.KILLED, Misdeed.RAISES) * 5:
        assert served.observe(scenario(misdeed)).fault is not None
        assert accepted(served.observe(HONEST))


def test_a_worker_that_died_between_two_frames_is_a_crash_of_the_second(served: Served) -> None:
    worker = served.ask(Question.WORKER)
    os.kill(worker, signal.SIGTERM)
    assert ends(worker)
    fault = served.observe(HONEST).fault
    assert fault is not None
    assert (fault.cause, fault.reason) == ("crash", "the subject was killed by SIGTERM")
    assert accepted(served.observe(HONEST))


def test_an_exception_of_the_driver_is_told_on_stderr(own: Served) -> None:
    own.observe(scenario(Misdeed.RAISES))
    assert b"RuntimeError: a driver that raises" in own.close()


def test_a_worker_that_hangs_is_a_hang_at_the_limit(served: Served) -> None:
    fault = served.observe(scenario(Misdeed.HANGS), limit=0.2).fault
    assert fault is not None
    assert (fault.cause, fault.reason) == ("hang", "no answer within 0.2 s")


def test_a_worker_that_hangs_is_killed(served: Served) -> None:
    worker = served.ask(Question.WORKER)
    served.observe(scenario(Misdeed.HANGS), limit=0.2)
    assert ends(worker)


def test_a_fresh_worker_answers_after_a_hang(served: Served) -> None:
    served.observe(scenario(Misdeed.HANGS), limit=0.2)
    assert accepted(served.observe(HONEST))


def test_a_worker_that_has_lost_its_device_answers_and_is_replaced(served: Served) -> None:
    worker = served.ask(Question.WORKER)
    answer = served.observe(scenario(Misdeed.LAST))

    assert answer.fault is None
    assert len(answer.observations) == 1
    assert ends(worker)
    assert accepted(served.observe(HONEST))


def test_in_a_frame_of_several_the_worker_answers_up_to_the_scenario_that_lost_the_device(served: Served) -> None:
    answer = served.observe(HONEST, scenario(Misdeed.LAST), HONEST)
    assert (answer.fault, answer.last, len(answer.observations)) == (None, True, 2)


@pytest.mark.parametrize("misdeed", [Misdeed.LAST, Misdeed.KILLED])
def test_what_a_worker_has_started_ends_with_it(served: Served, misdeed: Misdeed) -> None:
    child = served.ask(Question.CHILD)
    assert runs(child)

    served.observe(scenario(misdeed))

    assert ends(child)


def test_a_worker_that_closes_its_connection_and_stays_is_a_crash(own: Served) -> None:
    fault = own.observe(scenario(Misdeed.HANGS_UP), limit=1.0, patience=1.0).fault
    assert fault is not None
    assert fault.cause == "crash"


def test_what_a_worker_prints_reaches_stderr_and_no_frame(own: Served) -> None:
    answer = own.observe(scenario(Misdeed.PRINTS), HONEST)
    assert answer.fault is None
    assert len(answer.observations) == 2
    assert accepted(own.observe(HONEST))
    assert own.close() == b"garbage\n\x07\x00\x00\x00garbage"


def test_a_template_whose_requests_end_ends_with_its_worker(own: Served) -> None:
    worker = own.ask(Question.WORKER)
    own.close()
    assert own.process.returncode == 0
    assert ends(worker)


def test_a_template_whose_requests_end_within_a_frame_ends(own: Served) -> None:
    os.write(own.requests, PREFIX.pack(100) + b"half")
    own.close()
    assert own.process.returncode == 0


def test_a_template_without_a_worker_ends_when_its_requests_end(own: Served) -> None:
    own.close()
    assert own.process.returncode == 0


def test_a_worker_ends_with_a_template_that_is_killed(own: Served) -> None:
    worker = own.ask(Question.WORKER)
    own.process.kill()
    assert ends(worker)


def test_a_worker_that_hangs_ends_with_a_template_that_is_killed(own: Served) -> None:
    worker = own.ask(Question.WORKER)
    write_frame(own.requests, msgspec.msgpack.encode(Observe(ENOUGH, (scenario(Misdeed.HANGS),))))
    assert own.process.stderr is not None
    assert own.process.stderr.readline() == b"a worker hangs\n"
    own.process.kill()
    assert ends(worker)


def test_sessions_on_one_server_and_all_other_scenarios_have_a_worker_each(own: Served) -> None:
    first, second = SESSIONS[:2]
    workers = [own.ask(Question.WORKER), own.server_of(first), own.server_of(second)]

    assert len(set(workers)) == 3
    again = replace(first, visits=(Visit(2, 1),), fill=7.0)
    assert [own.ask(Question.WORKER), own.server_of(again), own.server_of(second)] == workers


def test_the_worker_of_which_nobody_has_asked_for_longest_ends_when_there_are_too_many(own: Served) -> None:
    workers = [own.server_of(one) for one in SESSIONS[:MOST_WORKERS]]
    assert own.server_of(SESSIONS[0]) == workers[0]
    newest = own.server_of(SESSIONS[-1])

    assert ends(workers[1])
    assert [runs(worker) for worker in (workers[0], *workers[2:], newest)] == [True] * MOST_WORKERS
    assert own.server_of(SESSIONS[0]) == workers[0]


def test_a_worker_that_was_ended_for_others_has_a_successor(own: Served) -> None:
    first = own.server_of(SESSIONS[0])
    for one in SESSIONS[1:]:
        own.server_of(one)

    assert ends(first)
    assert own.server_of(SESSIONS[0]) != first


def test_a_crash_of_one_worker_leaves_the_others(own: Served) -> None:
    first, second = SESSIONS[:2]
    workers = [own.ask(Question.WORKER), own.server_of(first), own.server_of(second)]
    fault = own.observe(fatal(first)).fault

    assert fault is not None
    assert (fault.cause, fault.reason) == ("crash", "the subject was killed by SIGKILL")
    assert [own.ask(Question.WORKER), own.server_of(second)] == [workers[0], workers[2]]
    assert own.server_of(first) not in workers


def test_all_workers_end_with_their_template(own: Served) -> None:
    workers = [own.ask(Question.WORKER), *(own.server_of(one) for one in SESSIONS[: MOST_WORKERS - 1])]
    own.close()

    assert all(ends(worker) for worker in workers)
