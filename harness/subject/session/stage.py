"""A scheduler and all that watches it, turn by turn; who plays on it feeds it the requests that are due."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import torch

from harness.scenario.observation import Answer, SessionSeen
from harness.scenario.session import SessionScenario
from harness.subject.session.accounts import Accounts, row_of
from harness.subject.session.pools import Pools
from harness.subject.session.results import Results
from harness.subject.session.watch import ENOUGH, Watch

#: Turns beyond those that the longest session could need; a session that takes more has come to a stand.
SPARE_TURNS = 60


class Over(BaseException):
    """The session is over. Not an `Exception`, so that it leaves sglang's event loop where it is raised there."""


class Due(NamedTuple):
    """Numbers of the visits that come at a turn, and of those that are aborted at it."""

    come: tuple[int, ...]
    gone: tuple[int, ...]


class Stage:
    """One scheduler, and what is seen of the session that is played on it.

    A player calls `due` where the event loop asks for requests: that is a turn.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.accounts = Accounts(scheduler)
        self.requests: dict[str, Any] = {}
        self.pools = Pools()
        self.watch = Watch(self._visit_of, self.pools, self.accounts)
        self._stand_around()

    def begin(self, scenario: SessionScenario) -> None:
        """A session begins on an empty server."""
        self.requests.clear()
        self.problems: list[str] = []
        self.watch.begin(late=scenario.streams == "late")
        self.results = Results()
        self.pools.fill(scenario.fill)
        torch.manual_seed(1)  # what is sampled does not depend on the sessions before
        self.accounts.begin()
        self.turn = 0
        #: Whether the session ended before all was answered, so that the server is not empty.
        self.stalled = False
        self._script = scenario

    def due(self) -> Due:
        """What comes in at this turn; looks at the books first. Raises Over."""
        script = self._script
        if not self.watch.late:
            self._look()
        waiting = [visit.arrives for visit in script.visits if visit.arrives >= self.turn]
        if self._idle():
            if not waiting:
                raise Over
            self.turn = min(waiting)
        elif self.turn > SPARE_TURNS + sum(visit.new_tokens + 1 for visit in script.visits):
            self.problems.append(f"after {self.turn} turns the server is not idle: it has come to a stand")
            self.stalled = True
            raise Over
        visits = list(enumerate(script.visits))
        come = tuple(number for number, visit in visits if visit.arrives == self.turn)
        gone = tuple(
            number
            for number, visit in visits
            if visit.aborted and visit.aborted == self.turn and visit.arrives < self.turn
        )
        self.turn += 1
        self.watch.turn = self.turn
        return Due(come, gone)

    def seen(self, error: str = "") -> SessionSeen:
        """What was seen of the session; `error` is what sglang raised, if it did."""
        return SessionSeen(
            self.turn,
            tuple(self.watch.forwards),
            tuple(self._answer(str(number)) for number in range(len(self._script.visits))),
            tuple(self.watch.accesses),
            tuple(self.problems),
            tuple(self.watch.rewritten),
            error,
        )

    def _stand_around(self) -> None:
        from sglang.srt.hardware_backend.npu.graph_runner.npu_graph_runner import NPUGraphRunner
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.model_executor.model_runner import ModelRunner
        from sglang.srt.speculative.eagle_draft_cuda_graph_runner import EAGLEDraftCudaGraphRunner
        from sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner import EAGLEDraftExtendCudaGraphRunner

        construct = Req.__init__

        def noted(request: Any, *args: Any, **kwargs: Any) -> None:
            construct(request, *args, **kwargs)
            self.requests[request.rid] = request

        Req.__init__ = noted
        ModelRunner.forward = self.watch.around(lambda runner: runner, ModelRunner.forward)
        # Up to 0.5.13 it is `replay`.
        name = "execute" if hasattr(NPUGraphRunner, "execute") else "replay"
        setattr(NPUGraphRunner, name, self.watch.replaying(getattr(NPUGraphRunner, name)))
        scheduler = type(self.scheduler)
        scheduler.run_batch = self._published(scheduler.run_batch)
        scheduler.process_batch_result = self._read(scheduler.process_batch_result)
        for cls in (EAGLEDraftCudaGraphRunner, EAGLEDraftExtendCudaGraphRunner):
            replayed = self.watch.replaying(getattr(cls, name))
            setattr(cls, name, self.watch.around(lambda graphs: graphs.model_runner, replayed))

    def _published(self, run_batch: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(run_batch)
        def noted(*args: Any, **kwargs: Any) -> Any:
            result = run_batch(*args, **kwargs)
            if not self.watch.late:
                self.results.publish(result)
            return result

        return noted

    def _read(self, process_batch_result: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(process_batch_result)
        def noted(scheduler: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
            self.watch.rewritten += self.results.read(result)[: ENOUGH - len(self.watch.rewritten)]
            return process_batch_result(scheduler, batch, result, *args, **kwargs)

        return noted

    def _look(self) -> None:
        for book in self.accounts.books:
            if freed := book.freed():
                self.watch.ledger.freed(book.slots_of(freed), book.window)
                self.pools.fill_pages(self._script.fill, freed, book.window)
        problem = self.accounts.audit(self.requests.values())
        if problem and len(self.problems) < ENOUGH:
            self.problems.append(f"turn {self.turn}: {problem}")

    def _idle(self) -> bool:
        scheduler = self.scheduler
        pending = getattr(scheduler, "result_queue", ())
        return (
            not len(pending)
            and not scheduler.waiting_queue
            and scheduler.running_batch.is_empty()
            and not scheduler.last_batch
            and scheduler.chunked_req is None
        )

    def _visit_of(self, row: int) -> int:
        held = (int(rid) for rid, request in self.requests.items() if row_of(request) == row)
        return next(held, -1)

    def _answer(self, rid: str) -> Answer:
        request = self.requests.get(rid)
        if request is None:
            return Answer()
        end = request.finished_len
        made = len(request.output_ids)
        length = made if end is None else end
        return Answer(
            tuple(request.output_ids[:length]),
            type(request.finished_reason).__name__ if request.finished() else "",
            request.spec_verify_ct,
            tuple(request.spec_correct_drafts_histogram),
            made - length,
            request.retraction_count,
        )
