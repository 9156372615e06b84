"""The supervisor: starts a subject in a process of its own and turns whatever happens there into observations."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

import harness
from harness.errors import CannotJudge
from harness.scenario import Scenario
from harness.scenario.observation import Fault, Observation
from harness.subject.frames import (
    ClosedError,
    DeadlineError,
    Hello,
    Observe,
    Observed,
    ProtocolError,
    SubjectInfo,
    read_frame,
    write_frame,
)
from harness.subject.source import Source

START_LIMIT = 180.0  #: seconds to import sglang on a slow machine
STEP_LIMIT = 30.0  #: seconds for one scenario, thousands of times what one takes
MAX_RESTARTS = 5  #: starts of a new template in one run; a worker that crashes costs none
STDERR_TAIL = 4000  #: characters of the subject's stderr that a fault keeps


class Supervisor:
    """A subject for `source` on `device` (`emulated` or `npu`); a context manager.

    `command` is put in front of the subject's own command line, so that a subject can run behind `ssh` or
    `docker exec`. Raises CannotJudge where the subject cannot be started at all.
    """

    def __init__(self, source: Source, device: str = "emulated", command: Sequence[str] = ()) -> None:
        self.source = source
        self.device = device
        self.command = tuple(command)
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.stderr = tempfile.TemporaryFile("a+b")  # noqa: SIM115 (closed by close())
        self.decoder = msgspec.msgpack.Decoder(Observed)
        try:
            self.info = self._start()
        except BaseException:
            self.close()
            raise

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        """One observation for each scenario, in order.

        Where a frame of several is lost with its worker, they are sent again one by one: the fault then belongs to the
        scenario that made it.
        """
        if not scenarios:
            return []
        limit = STEP_LIMIT + len(scenarios) * 0.1
        answer = self._exchange(Observe(limit, tuple(scenarios)))
        if answer.fault is None:
            if len(answer.observations) == len(scenarios):
                return list(answer.observations)
            answer = Observed(fault=Fault("protocol", "the subject answered another number of scenarios"))
        if len(scenarios) > 1:
            return [observation for one in scenarios for observation in self.observe([one])]
        return [Observation(fault=answer.fault)]

    def _exchange(self, message: Observe) -> Observed:
        process = self._running()
        assert process.stdin is not None and process.stdout is not None
        try:
            write_frame(process.stdin.fileno(), msgspec.msgpack.encode(message))
            answer = self.decoder.decode(read_frame(process.stdout.fileno(), message.limit + STEP_LIMIT))
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
        if self.process is None:
            if self.restarts >= MAX_RESTARTS:
                raise CannotJudge(f"the subject {self.source.spec} was lost {self.restarts} times: giving up.")
            self.restarts += 1
            self._start()
        assert self.process is not None
        return self.process

    def _start(self) -> SubjectInfo:
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
        return environment

    def _not_started(self, why: str) -> CannotJudge:
        self._kill()
        lines = [line.strip() for line in self._stderr_tail().splitlines() if line.strip()]
        last = f" Its last words: {lines[-1]}" if lines and lines[-1] not in why else ""
        return CannotJudge(f"sglang {self.source.release} ({self.source.spec}) is no subject: {why}.{last}")

    def _stderr_tail(self) -> str:
        size = self.stderr.seek(0, os.SEEK_END)
        self.stderr.seek(max(0, size - STDERR_TAIL))
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
        self.stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
