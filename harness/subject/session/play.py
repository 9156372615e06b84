"""Playing a session: requests are handed to the scheduler turn by turn, in its own event loop."""

from array import array
from typing import Any

from harness.npu.boundary import listening
from harness.scenario.observation import Answer, SessionSeen
from harness.scenario.prompts import prompt
from harness.scenario.session import SessionScenario
from harness.subject.blame import sglang_error
from harness.subject.session.accounts import Accounts, row_of
from harness.subject.session.pools import Pools
from harness.subject.session.watch import ENOUGH, Watch

#: Turns beyond those that the longest session could need; a session that takes more has come to a stand.
SPARE_TURNS = 60


class _Over(BaseException):
    """Leaves the event loop."""


class Stage:
    """One scheduler, and the sessions that are played on it, one after the other."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.accounts = Accounts(scheduler)
        self.watch = Watch(self._visit_of)
        self.watch.page_size = self.accounts.page_size
        self.requests: dict[str, Any] = {}
        self.pools = Pools()
        self._stand_around()
        #: Whether a session ended in the middle, so that no other can be played.
        self.broken = False

    def play(self, scenario: SessionScenario) -> SessionSeen:
        """Play one session from an empty server on."""
        self.requests.clear()
        self.problems: list[str] = []
        self.watch.begin()
        self.pools.fill(scenario.fill)
        self.free = set(self.accounts.free_pages().tolist())
        self.turn = 0
        error = ""
        self._script = scenario
        with listening(self.watch):
            try:
                self.scheduler.run_event_loop()
            except _Over:
                pass
            except Exception as failure:
                self.broken = True
                error = sglang_error(failure)
        if not self.broken and not self.scheduler.flush_cache():
            self.broken = True
        return SessionSeen(
            self.turn,
            tuple(self.watch.forwards),
            tuple(self._answer(str(number)) for number in range(len(scenario.visits))),
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
        type(self.scheduler.request_receiver).recv_requests = lambda receiver, *args, **kwargs: self._next()
        ModelRunner.forward = self.watch.around(lambda runner: runner, ModelRunner.forward)
        NPUGraphRunner.execute = self.watch.replaying(NPUGraphRunner.execute)
        for cls in (EAGLEDraftCudaGraphRunner, EAGLEDraftExtendCudaGraphRunner):
            cls.execute = self.watch.around(lambda graphs: graphs.model_runner, self.watch.replaying(cls.execute))

    def _next(self) -> list[Any]:
        """What comes in at this turn; looks at the books first, and leaves where the session is over."""
        script = self._script
        self._look()
        waiting = [visit.arrives for visit in script.visits if visit.arrives >= self.turn]
        if self._idle():
            if not waiting:
                raise _Over
            self.turn = min(waiting)
        elif self.turn > SPARE_TURNS + sum(visit.new_tokens + 1 for visit in script.visits):
            self.problems.append(f"after {self.turn} turns the server is not idle: it has come to a stand")
            raise _Over
        come = [_request(script, number) for number, visit in enumerate(script.visits) if visit.arrives == self.turn]
        gone = [
            _abort(str(number))
            for number, visit in enumerate(script.visits)
            if visit.aborted and visit.aborted == self.turn and visit.arrives < self.turn
        ]
        self.turn += 1
        self.watch.turn = self.turn
        return come + gone

    def _look(self) -> None:
        free = set(self.accounts.free_pages().tolist())
        freed = free - self.free
        if freed:
            self.watch.ledger.freed(self.accounts.slots_of(freed))
            self.pools.fill(self._script.fill, sorted(freed))
        self.free = free
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


def _request(scenario: SessionScenario, number: int) -> Any:
    """The request of a visit, as the tokenizer hands it over; what it leaves out is at its default."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    visit = scenario.visits[number]
    sampling = SamplingParams(temperature=visit.temperature / 100, max_new_tokens=visit.new_tokens, ignore_eos=True)
    sampling.normalize(None)
    return TokenizedGenerateReqInput(
        rid=str(number),
        input_text="",
        input_ids=array("q", prompt(visit, number)),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
    )


def _abort(rid: str) -> Any:
    from sglang.srt.managers.io_struct import AbortReq

    return AbortReq(rid=rid)
