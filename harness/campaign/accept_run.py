"""Having a server answer a prompt set, and keeping what it accepted: the free run, the scores, the replayed steps."""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Event
from typing import Literal, TypeVar

from msgspec.structs import replace

from harness.errors import CannotJudge, HarnessError, UsageError
from harness.parity import acceptance_file as runs
from harness.parity.acceptance_run import STEP_TOKENS, Ended, Header, Reply, Run, Scored, Step, System
from harness.subject.server.api import Counts, Server, ServerGone, ServerInfo

Tokens = tuple[int, ...]
Whose = Literal["own", "base"]
Asked = TypeVar("Asked")
Answered = TypeVar("Answered", Reply, Scored, Step)
#: Told of a stage, how far it is, and of how much.
Progress = Callable[[str, int, int], None]


def system_of(info: ServerInfo, where: str, device: str | None) -> System:
    """A server as data; `device` is what the user says of it, where the server cannot know."""
    return System(
        where,
        info.version,
        device or info.device,
        info.dtype,
        info.tp_size,
        not info.disable_cuda_graph,
        info.model_path,
        info.speculative_draft_model_path or "",
        info.random_seed,
    )


def require_speculation(info: ServerInfo, where: str, concurrency: int) -> tuple[str, int]:
    """The server's algorithm and the tokens of a verify; raises UsageError where it does not speculate, or at once
    answers fewer requests than `concurrency`."""
    if not info.speculative_algorithm:
        raise UsageError(f"{where} does not speculate: start it with --speculative-algorithm and a draft.")
    if not info.speculative_num_draft_tokens:
        raise UsageError(f"{where} does not say speculative_num_draft_tokens: this harness knows 0.5.15 and newer.")
    if info.max_running_requests is not None and info.max_running_requests < concurrency:
        raise UsageError(
            f"{where} answers {info.max_running_requests} requests at once, and --concurrency is {concurrency}: "
            "lower it, or start the server with more --max-running-requests."
        )
    return info.speculative_algorithm, info.speculative_num_draft_tokens


def begun(out: Path, header: Header) -> None:
    """Begin a run at `out`, or take up the one that is there; raises UsageError where that is another one."""
    if not out.exists():
        runs.write(out, header)
        return
    there = runs.read(out).header
    for name, mine, theirs in (
        ("setting", header.setting, there.setting),
        ("system", _lasting(header.system), _lasting(there.system)),
        ("base", header.base, there.base),
        ("stride", header.stride, there.stride),
        ("order", header.order, there.order),
    ):
        if mine != theirs:
            raise UsageError(f"{out} holds a run with another {name}: name another file, or delete it.")
    runs.drop_torn_line(out)


def _lasting(system: System) -> System:
    """What of a server is the same when it has been started again: without a seed it draws one, and a port is any."""
    return replace(system, where="", seed=0)


class AcceptRun:
    """A run in progress at `out`: what it has is asked no more. `base` is whose answers are scored and replayed."""

    def __init__(self, server: Server, out: Path, prompts: Sequence[Tokens], base: Run | None) -> None:
        self.server, self.out, self.prompts = server, out, prompts
        self.run = runs.read(out)
        self.replies = dict(self.run.replies)
        self.base = base.replies if base else self.replies

    def go_on(self, progress: Progress) -> str:
        """Ask for all that is missing; returns why the server scores nothing, or nothing.

        Raises what the server raises, and CannotJudge where it is lost, with how much of the run is kept.
        """
        try:
            return self._go_on(progress)
        except HarnessError as error:
            runs.append(self.out, Ended(str(error)))
            if not isinstance(error, ServerGone):
                raise
            raise CannotJudge(
                f"{error} {len(self.replies)} of {len(self.prompts)} prompts are answered, and kept in {self.out}: "
                "the same command goes on from there."
            ) from None

    def _go_on(self, progress: Progress) -> str:
        header = self.run.header
        missing = [number for number in range(len(self.prompts)) if number not in self.replies]
        if header.order:
            random.Random(header.order).shuffle(missing)
        for reply in self._each("free run", missing, self._reply, progress):
            self.replies[reply.number] = reply
        unscored = self._score(progress)
        if header.stride:
            steps = [
                (number, start)
                for number, reply in sorted(self.base.items())
                for start in range(0, len(reply.tokens), header.stride)
                if (number, start) not in self.run.steps
            ]
            for _ in self._each("replay", steps, self._step, progress):
                pass
        return unscored

    def _score(self, progress: Progress) -> str:
        """Score the answers; with some releases and algorithms the server refuses the first, and says why."""
        asked: list[tuple[Whose, int]] = [
            ("own", number) for number in sorted(self.replies) if number not in self.run.own
        ]
        if self.run.header.base:
            asked += [("base", number) for number in sorted(self.base) if number not in self.run.base]
        try:
            for _ in self._each("scores", asked[:1], self._scored, progress):
                pass
        except UsageError as error:
            return str(error)
        for _ in self._each("scores", asked[1:], self._scored, progress):
            pass
        return ""

    def _each(
        self, stage: str, asked: Sequence[Asked], ask: Callable[[Asked], Answered], progress: Progress
    ) -> Iterator[Answered]:
        """Ask for each at the run's concurrency, and write every answer as it comes. The first error ends it."""
        progress(stage, 0, len(asked))
        failed = Event()

        def ask_unless_failed(one: Asked) -> Answered | None:
            if failed.is_set():
                return None
            try:
                return ask(one)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(self.run.header.setting.concurrency) as pool:
            futures = [pool.submit(ask_unless_failed, one) for one in asked]
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    record = future.result()
                    if record is not None:
                        runs.append(self.out, record)
                        progress(stage, done, len(asked))
                        yield record
            finally:
                failed.set()
                pool.shutdown(cancel_futures=True)

    def _reply(self, number: int) -> Reply:
        new_tokens = self.run.header.setting.new_tokens
        given = self.server.generate(self.prompts[number], new_tokens)
        told = given.meta_info
        reason = (told.finish_reason or {}).get("type")
        if reason not in ("length", "stop"):
            raise CannotJudge(
                f"{self.server.url} did not answer prompt {number} to its end, but ended it by {reason!r}."
            )
        if given.output_ids is None:
            raise UsageError(f"{self.server.url} answers without output_ids: this harness knows 0.5.15 and newer.")
        # Up to 0.5.23 a block may be handed out whole, also beyond the end.
        tokens = given.output_ids[:new_tokens]
        # An answer of one token comes from the prefill alone.
        histogram = self._histogram(told) if len(tokens) > 1 else ()
        return Reply(
            number,
            self.prompts[number],
            tokens,
            told.spec_verify_ct or 0,
            told.spec_num_correct_drafts or 0,
            told.spec_num_proposed_drafts or 0,
            histogram,
            told.spec_accept_length,
        )

    def _scored(self, asked: tuple[Whose, int]) -> Scored:
        whose, number = asked
        reply = (self.replies if whose == "own" else self.base)[number]
        return Scored(number, whose, *self.server.score(reply.prompt, reply.tokens))

    def _step(self, asked: tuple[int, int]) -> Step:
        number, start = asked
        reply = self.base[number]
        given = self.server.generate((*reply.prompt, *reply.tokens[:start]), STEP_TOKENS, ignore_eos=True)
        histogram = self._histogram(given.meta_info)
        if sum(histogram) != 1:
            raise CannotJudge(
                f"{self.server.url} took {sum(histogram)} verifies to the second token, where one is enough."
            )
        return Step(number, start, histogram.index(1))

    def _histogram(self, told: Counts) -> tuple[int, ...]:
        """How many verifies accepted how many drafts; raises CannotJudge where a count is missing."""
        for name in ("spec_verify_ct", "spec_num_correct_drafts", "spec_correct_drafts_histogram"):
            if getattr(told, name) is None:
                raise CannotJudge(
                    f"{self.server.url} answers without {name} in meta_info: there is nothing to compare."
                )
        return told.spec_correct_drafts_histogram or ()
