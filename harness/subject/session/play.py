"""The worker subject: requests are handed to the scheduler turn by turn, in its own event loop, in this process."""

from array import array
from contextlib import nullcontext
from typing import Any

from harness.models.prompts import prompt
from harness.npu.boundary import listening
from harness.npu.interleaving import late
from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario
from harness.subject.blame import sglang_error
from harness.subject.session import server
from harness.subject.session.arguments import sampling, server_arguments
from harness.subject.session.stage import Over, Stage


class WorkerPlayer:
    """One scheduler with its workers, and the sessions that are played on it, one after the other. Raises Refused."""

    def __init__(self, scenario: SessionScenario) -> None:
        self.scheduler = server.start(server_arguments(scenario))
        self.stage = Stage(self.scheduler)
        type(self.scheduler.request_receiver).recv_requests = lambda receiver, *args, **kwargs: self._next()
        #: Whether a session ended in the middle, so that no other can be played.
        self.broken = False

    def play(self, scenario: SessionScenario) -> SessionSeen:
        """Play one session from an empty server on."""
        self.stage.begin(scenario)
        error = ""
        self._script = scenario
        streams = late() if scenario.streams == "late" else nullcontext()
        try:  # late streams do what is left of their work as they are left, and it may raise
            with listening(self.stage.watch), streams:
                self.scheduler.run_event_loop()
        except Over:
            pass
        except Exception as failure:
            self.broken = True
            error = sglang_error(failure)
        if not self.broken and not self.scheduler.flush_cache():
            self.broken = True
        return self.stage.seen(error)

    def _next(self) -> list[Any]:
        come, gone = self.stage.due()
        return [_request(self._script, number) for number in come] + [_abort(str(number)) for number in gone]


def _request(scenario: SessionScenario, number: int) -> Any:
    """The request of a visit, as the tokenizer hands it over; what it leaves out is at its default."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    visit = scenario.visits[number]
    parameters = SamplingParams(**sampling(visit))
    parameters.normalize(None)
    return TokenizedGenerateReqInput(
        rid=str(number),
        input_text="",
        input_ids=array("q", prompt(visit, number)),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=parameters,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
    )


def _abort(rid: str) -> Any:
    from sglang.srt.managers.io_struct import AbortReq

    return AbortReq(rid=rid)
