"""The engine subject: `sglang.Engine` with all its processes, asked by its own interface."""

import asyncio
import functools
import multiprocessing
import os
from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.models.prompts import prompt
from harness.npu import is_installed
from harness.npu.presence import EMULATE
from harness.scenario.observation import Answer, SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.subject.session import inside, server
from harness.subject.session.arguments import sampling, server_arguments
from harness.subject.session.words import Begin, Gathered, Played, Word

#: Seconds after the end of a session in which its answers must be there, thousands of times what it takes.
ANSWER_LIMIT = 30.0
#: Seconds between two looks at whether the tokenizer knows of a request.
PAUSE = 0.001


class NotStarted(Exception):
    """The scheduler's process says why there is no server: `seen.error`."""

    def __init__(self, seen: SessionSeen) -> None:
        super().__init__(seen.error)
        self.seen = seen


class EngineFault(Exception):
    """The harness could not do its work in the scheduler's process; the message says what and where."""


class EngineGone(Exception):
    """The scheduler's process is gone without a word: something has killed it."""


class EnginePlayer:
    """One engine, and the sessions that are played on it, one after the other.

    Raises Refused, NotStarted or EngineFault where it does not start, and EngineGone. All processes of the engine end
    with this one, however it ends.
    """

    def __init__(self, scenario: SessionScenario) -> None:
        if is_installed():
            os.environ[EMULATE] = "1"
        #: Whether a session ended in the middle, so that no other can be played.
        self.broken = False
        self.control, there = multiprocessing.get_context("spawn").Pipe()
        with there:
            try:
                self.engine = _engine_class(there)(**server_arguments(scenario))
            except Exception as error:
                with self.control:
                    if not self.control.poll():
                        raise server.Refused from error
                    self._read()
                    there.close()
                    raise NotStarted(_played(self._read()).seen) from error
        self._read()

    def play(self, scenario: SessionScenario) -> SessionSeen:
        """Play one session from an empty server on."""
        self.broken = True  # until it has been played to its end
        seen: SessionSeen = self.engine.loop.run_until_complete(self._play(scenario))
        return seen

    async def _play(self, scenario: SessionScenario) -> SessionSeen:
        manager = self.engine.tokenizer_manager
        asked = [asyncio.create_task(self._ask(visit, number)) for number, visit in enumerate(scenario.visits)]
        while not all(task.done() or str(number) in manager.rid_to_state for number, task in enumerate(asked)):
            await asyncio.sleep(PAUSE)
        refused = tuple(number for number, task in enumerate(asked) if task.done())
        self.control.send_bytes(msgspec.msgpack.encode(Begin(scenario, refused)))
        word = await self._word()
        if isinstance(word, Gathered):
            for number, visit in enumerate(scenario.visits):
                if visit.aborted and number not in refused:
                    manager.abort_request(rid=str(number))
            word = await self._word()
        seen = _played(word).seen
        if not seen.error:
            await asyncio.wait(asked, timeout=0 if _played(word).last else ANSWER_LIMIT)
        answers = tuple(
            merged(_result(task, visit), inner)
            for task, visit, inner in zip(asked, scenario.visits, seen.answers, strict=True)
        )
        error = seen.error
        self.broken = _played(word).last
        if not self.broken:
            flushed = await self._unless_it_ends(manager.flush_cache())
            self.broken = isinstance(flushed, Played) or not flushed.success
            error = flushed.seen.error if isinstance(flushed, Played) else ""
        for task in asked:
            task.cancel()
        return replace(seen, answers=answers, error=error)

    async def _ask(self, visit: Visit, number: int) -> Any:
        return await self.engine.async_generate(
            input_ids=prompt(visit, number), sampling_params=sampling(visit), rid=str(number)
        )

    async def _word(self) -> Word:
        """What the scheduler's process says next."""
        loop = asyncio.get_running_loop()
        readable = loop.create_future()
        loop.add_reader(self.control.fileno(), readable.cancel)
        try:
            await asyncio.wait([readable])
        finally:
            loop.remove_reader(self.control.fileno())
        return self._read()

    def _read(self) -> Word:
        try:
            word: Word = msgspec.msgpack.decode(self.control.recv_bytes(), type=Word)
        except EOFError as error:
            raise EngineGone("the scheduler's process has ended without a word") from error
        if isinstance(word, Played) and word.fault:
            raise EngineFault(word.fault)
        return word

    async def _unless_it_ends(self, asked: Coroutine[Any, Any, Any]) -> Any:
        """What `asked` comes to, or what the scheduler's process says instead."""
        tasks = [asyncio.create_task(asked), asyncio.create_task(self._word())]
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        return done.pop().result()


def _engine_class(control: Any) -> Any:
    from sglang.srt.entrypoints.engine import Engine

    functions = {
        "run_scheduler_process_func": staticmethod(functools.partial(inside.run_scheduler_process, control)),
        "run_detokenizer_process_func": staticmethod(inside.run_detokenizer_process),
    }
    return type("WatchedEngine", (Engine,), functions)


def _played(word: Word) -> Played:
    if not isinstance(word, Played):
        raise EngineFault(f"the scheduler's process says {type(word).__name__} where a session should be over")
    return word


def _result(task: "asyncio.Task[Any]", visit: Visit) -> Answer | None:
    """What the engine answered to a visit, or None where it has not. An engine that refuses gives no tokens."""
    if not task.done():
        return None
    if error := task.exception():
        return Answer(finished=f"{type(error).__name__}: {error}")
    return answer(task.result(), visit.new_tokens)


def answer(given: Any, new_tokens: int) -> Answer:
    """An answer of the engine as data. Up to 0.5.23 a block is handed out whole, also beyond the end: it is cut."""
    told = given["meta_info"]
    reason = told.get("finish_reason") or {}
    return Answer(
        tuple(given.get("output_ids") or ())[:new_tokens],
        str(reason.get("type", "")),
        int(told.get("spec_verify_ct") or 0),
        tuple(told.get("spec_correct_drafts_histogram") or ()),
    )


def merged(outer: Answer | None, inner: Answer) -> Answer:
    """What the engine answered, with what only the scheduler knows: tokens beyond the end, and retractions.

    Where the engine has not answered, the tokens are those that the scheduler has, and there is no end.
    """
    if outer is None:
        return replace(inner, finished="")
    return replace(outer, overshoot=inner.overshoot, retractions=inner.retractions)
