"""The supervisor: starts a subject in a process of its own and turns whatever happens there into observations."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

import harness
from harness.errors import NoSubject
from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import Fault, Observation
from harness.scenario.session import Subject
from harness.shadow.overhead import Overhead
from harness.subject.cuda.prepare import INTERPRETING
from harness.subject.frames import (
    ClosedError,
    DeadlineError,
    Hello,
    Observe,
    Observed,
    ProtocolError,
    SubjectInfo,
    read_frame,
    stage_of,
    write_frame,
)
from harness.subject.losses import Losses
from harness.subject.patch import Patch
from harness.subject.pending import FOLDER, Pending
from harness.subject.source import Source

START_LIMIT = 180.0  #: seconds to import sglang on a slow machine
STEP_LIMIT = 30.0  #: seconds for one scenario, thousands of times what one takes
INTERPRETED_LIMIT = 60.0  #: seconds for each scenario whose kernels are interpreted, which takes 1 to 3
#: Seconds to start a server and to play one session, some ten times what it takes.
SESSION_LIMITS: dict[Subject, float] = {"worker": 240.0, "engine": 600.0}
TRACED = 10  #: times as long as usual that a scenario may take while its lines are noted
STDERR_TAIL = 4000  #: characters of the subject's stderr that a fault keeps


class Supervisor:
    """A subject for `source` on `device`, one of those that `harness.parity.sides` lists; a context manager.

    `command` is put in front of the subject's own command line, so that a subject can run behind `ssh` or
    `docker exec`. What it is asked lies in a folder of its own in `pending` until it has answered. Raises NoSubject
    where the subject cannot be started at all, and where it was lost too often.
    """

    def __init__(
        self, source: Source, device: str = "emulated", command: Sequence[str] = (), pending: Path = FOLDER
    ) -> None:
        self.source = source
        self.device = device
        self.command = tuple(command)
        self.pending = Pending(source, device, pending)
        self.losses = Losses()
        #: Scenarios that cost their subject whenever they are asked. An answer must not change from one time to the
        #: next, or Hypothesis takes the subject for flaky.
        self.faults: dict[Scenario, Fault] = {}
        self.overhead = Overhead()
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (closed by close())
        self.said = 0
        self.decoder = msgspec.msgpack.Decoder(Observed)
        try:
            self.info = self._start()
        except BaseException:
            self.close()
            raise

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        """One observation for each scenario, in order.

        Where a frame of several is lost with its worker, they are asked again one by one, and one that is lost alone is
        asked again until it is answered or until it cannot be chance any more: the fault then belongs to the scenario
        that made it. A frame that ends early with the device goes on with a new worker.
        """
        if self.faults:
            asked = [one for one in scenarios if one not in self.faults]
            answers = dict(zip(asked, self._ask(asked), strict=True))
            return [answers.get(one) or Observation(fault=self.faults[one]) for one in scenarios]
        return self._ask(scenarios)

    def trace(self, scenario: Scenario) -> dict[str, tuple[int, ...]]:
        """The lines of sglang that run while `scenario` is observed, by file; raises NoSubject where it is lost.

        Only a subject that was asked nothing else runs everything: backends and servers are kept warm.
        """
        answer = self._exchange([scenario], traced=True)
        if answer.fault is not None:
            raise NoSubject(f"sglang {self.source.release} was lost while it was traced: {answer.fault.reason}.")
        return answer.executed

    def _ask(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        observations: list[Observation] = []
        while len(observations) < len(scenarios):
            rest = _of_one_stage(scenarios[len(observations) :])
            answer = self._exchange(rest)
            if answer.fault is None:
                observations += answer.observations
            elif len(rest) == 1:
                observations.append(self._ask_again(rest[0], answer.fault))
            else:
                alone = [observation for one in rest for observation in self.observe([one])]
                if not any(one in self.faults for one in rest):
                    self.losses.excuse(answer.fault)
                observations += alone
        return observations

    def _ask_again(self, scenario: Scenario, fault: Fault) -> Observation:
        """Ask a scenario again that was lost alone, with `fault`; as often as it takes to know whose doing it is."""
        lost = 1
        while lost < self.losses.tries(fault):
            answer = self._exchange([scenario])
            if answer.fault is None:
                self.losses.excuse(fault, lost)
                return answer.observations[0]
            fault = answer.fault
            lost += 1
        self.faults[scenario] = fault
        return Observation(fault=fault)

    def _exchange(self, scenarios: Sequence[Scenario], traced: bool = False) -> Observed:
        """Send one frame. The answer has a fault or an observation for each scenario, fewer where the device went."""
        self._running()
        first, stage = scenarios[0], stage_of(scenarios[0])
        limit = STEP_LIMIT + len(scenarios) * (INTERPRETED_LIMIT if self.device in INTERPRETING else 0.1)
        if isinstance(first, SessionScenario):
            limit = SESSION_LIMITS[first.subject] * len(scenarios)
        self.pending.write(scenarios)
        message = Observe(limit, tuple(scenarios), stage)
        if traced:
            message = Observe(limit * TRACED, tuple(scenarios), stage, self.source.path)
        answer = self._answer(message)
        self.pending.clear()
        self.overhead += answer.overhead
        if answer.fault is None:
            self.losses.answered += len(answer.observations)
        else:
            self.losses.add(answer.fault)
        return answer

    def observe_once(
        self, scenarios: Sequence[Scenario], limit: float, patch: Patch | None = None, traced: bool = False
    ) -> Observed:
        """What a worker with `patch` answers to scenarios of one stage within `limit` seconds, asked once.

        A loss is the patch's doing: it counts for nothing here. Where it is `traced`, the lines that ran are noted.
        """
        folder = self.source.path if traced else ""
        return self._answer(Observe(limit, tuple(scenarios), stage_of(scenarios[0]), folder, patch))

    def _answer(self, message: Observe) -> Observed:
        """Send one frame and read what comes back; a subject that gives no answer is ended."""
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        self.said = self.stderr.seek(0, os.SEEK_END)
        try:
            write_frame(process.stdin.fileno(), msgspec.msgpack.encode(message))
            answer = self.decoder.decode(read_frame(process.stdout.fileno(), message.limit + STEP_LIMIT))
            if answer.fault is None and not answer.answers(len(message.scenarios)):
                raise ProtocolError("the subject answered another number of scenarios")
        except DeadlineError:
            self._kill()
            answer = Observed(fault=Fault("hang", f"no answer within {message.limit + STEP_LIMIT:g} s"))
        except (ProtocolError, msgspec.DecodeError) as error:
            self._kill()
            answer = Observed(fault=Fault("protocol", str(error)))
        if answer.fault is None:
            return answer
        return Observed(fault=msgspec.structs.replace(answer.fault, stderr=self._stderr_tail()))

    def _running(self) -> "subprocess.Popen[bytes]":
        if self.losses.enough:
            lost = self.losses.crashes + self.losses.costly
            raise NoSubject(
                f"the subject {self.source.spec} was lost {lost} times while it answered {self.losses.answered} "
                "scenarios: giving up."
            )
        if self.process is None:
            self._start()
        assert self.process is not None
        return self.process

    def _start(self) -> SubjectInfo:
        self.said = self.stderr.seek(0, os.SEEK_END)
        arguments = [sys.executable, "-P", "-m", "harness.subject", self.source.path, self.device]
        try:
            self.process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.stderr,
                env=self._environment(),
            )
        except OSError as error:
            raise self._not_started(f"its command cannot be run: {error}") from error
        assert self.process.stdout is not None
        try:
            frame = read_frame(self.process.stdout.fileno(), START_LIMIT)
            hello = msgspec.msgpack.decode(frame, type=Hello)
        except DeadlineError:
            raise self._not_started(f"it did not start within {START_LIMIT:g} s") from None
        except ClosedError:
            raise self._not_started("it died while starting") from None
        except (ProtocolError, msgspec.DecodeError):
            raise self._not_started("it said something else than hello") from None
        if hello.info is None:
            raise self._not_started(hello.fault.reason if hello.fault else "it said nothing")
        return msgspec.structs.replace(
            hello.info, release=self.source.release, revision=self.source.revision, spec=self.source.spec
        )

    def _environment(self) -> dict[str, str]:
        """sglang first, then the harness; one thread, since batches are small and subjects run side by side."""
        environment = dict(os.environ)
        paths = [self.source.path, str(Path(harness.__file__).parent.parent)]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment["TOKENIZERS_PARALLELISM"] = "false"
        if self.source.kind == "release":
            # A release lies in the harness's own cache: what Python compiles of it may lie there, too, and spares each
            # later start a quarter of its time where an image forbids it (as those of many a CI do).
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment

    def _not_started(self, why: str) -> NoSubject:
        self._kill()
        lines = [line.strip() for line in self._stderr_tail().splitlines() if line.strip()]
        last = f" Its last words: {lines[-1]}" if lines and lines[-1] not in why else ""
        return NoSubject(f"sglang {self.source.release} ({self.source.spec}) is no subject: {why}.{last}")

    def _stderr_tail(self) -> str:
        """The end of what was said on stderr since the last frame was sent, or since the start."""
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(self.said, size - STDERR_TAIL))
        return self.stderr.read().decode(errors="replace")

    def _kill(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End the subject; its worker ends with it."""
        self._kill()
        self.pending.close()
        self.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.pending.clear()  # nothing is wrong with the scenario: somebody has changed their mind
        self.close()


def _of_one_stage(scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    """The first of `scenarios`, as far as they are for one worker."""
    stage = stage_of(scenarios[0])
    return list(takewhile(lambda one: stage_of(one) == stage, scenarios))
