"""The engine subject on an engine of its own kind: what is answered, refused, lost, and how it ends."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.scenario.observation import Answer, Fault, SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.subject.frames import Observe
from harness.subject.session import driver, engine, server
from harness.subject.session.engine import EngineFault, EngineGone, EnginePlayer, NotStarted, answer, merged
from harness.subject.session.words import Begin, Gathered, Here, Played, Word

TWO = SessionScenario("DFLASH", (Visit(5, 3), Visit(6, 2, aborted=1)), subject="engine")
#: What the scheduler of the engine below has of them.
INNER = (Answer((1, 2, 3), "FINISH_LENGTH", 2, (1, 1), 1), Answer((4,), "FINISH_ABORT"))
SEEN = SessionSeen(7, answers=INNER)
GIVEN = {
    "0": {"output_ids": [1, 2, 3, 9], "meta_info": {"finish_reason": {"type": "length"}, "spec_verify_ct": 2}},
    "1": {"output_ids": [4], "meta_info": {"finish_reason": {"type": "abort"}}},
}

Scheduler = Callable[["Engine"], None]


def plays(engine: "Engine") -> None:
    """A scheduler that plays one session after the other."""
    while engine.gathers():
        engine.answer(*GIVEN)
        engine.say(Played(SEEN))


class Engine:
    """Stands for `sglang.Engine`: its scheduler is a thread with the other end of the pipe."""

    def __init__(self, control: Connection, scheduler: Scheduler, refuses: str = "", flushes: bool = True) -> None:
        self.control = control
        self.refuses = refuses
        self.flushes = flushes
        self.loop = asyncio.new_event_loop()
        self.futures: dict[str, Any] = {}
        self.aborted: list[str] = []
        self.tokenizer_manager = SimpleNamespace(
            rid_to_state=self.futures, abort_request=lambda rid: self.aborted.append(rid), flush_cache=self._flush
        )
        self.say(Here())
        self.thread = threading.Thread(target=scheduler, args=(self,))
        self.thread.start()

    def close(self) -> None:
        self.thread.join()
        self.control.close()
        self.loop.close()

    async def async_generate(self, input_ids: list[int], sampling_params: dict[str, Any], rid: str) -> Any:
        if rid == self.refuses:
            raise ValueError("the prompt is too long")
        self.futures[rid] = self.loop.create_future()
        return await self.futures[rid]

    async def _flush(self) -> Any:
        self.futures.clear()
        if not self.flushes:
            await asyncio.Event().wait()
        return SimpleNamespace(success=True)

    def gathers(self) -> bool:
        """Wait for a session; false where there is none any more."""
        try:
            self.begun = msgspec.msgpack.decode(self.control.recv_bytes(), type=Begin)
        except (EOFError, OSError):
            return False
        self.say(Gathered())
        return True

    def say(self, word: Any) -> None:
        self.control.send_bytes(msgspec.msgpack.encode(word))

    def answer(self, *rids: str) -> None:
        for rid in rids:
            if rid in self.futures:
                self.loop.call_soon_threadsafe(self.futures[rid].set_result, GIVEN[rid])


Started = Callable[..., EnginePlayer]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Makes players whose engines have the scheduler that is given."""
    with ExitStack() as stack:

        def player(scheduler: Scheduler = plays, **kwargs: Any) -> EnginePlayer:
            def made(control: Connection) -> Any:
                # As in a spawned process, the scheduler's end is a copy of its own.
                own = Connection(os.dup(control.fileno()))
                return lambda **arguments: Engine(own, scheduler, **kwargs)

            monkeypatch.setattr(engine, "_engine_class", made)
            made_player = EnginePlayer(TWO)
            stack.callback(made_player.engine.close)
            stack.callback(made_player.control.close)
            return made_player

        yield player


def test_answers_are_the_engines_and_the_rest_is_the_schedulers(started: Started) -> None:
    player = started()

    seen = player.play(TWO)

    assert seen.turns == 7
    assert seen.answers == (Answer((1, 2, 3), "length", 2, (), 1), Answer((4,), "abort"))
    assert not player.broken


def test_an_engine_plays_one_session_after_the_other(started: Started) -> None:
    player = started()

    assert player.play(TWO) == player.play(TWO)


def test_only_who_is_aborted_is_aborted(started: Started) -> None:
    player = started()
    player.play(TWO)

    assert player.engine.aborted == ["1"]


def test_a_visit_that_the_engine_refuses_gets_no_tokens(started: Started) -> None:
    player = started(refuses="0")

    seen = player.play(TWO)

    assert player.engine.begun.refused == (0,)
    assert seen.answers[0] == Answer(finished="ValueError: the prompt is too long", overshoot=1)
    assert seen.answers[1].tokens == (4,)


def test_a_visit_that_is_never_answered_has_no_end(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(engine: Engine) -> None:
        engine.gathers()
        engine.answer("1")
        engine.say(Played(SEEN))

    monkeypatch.setattr(engine, "ANSWER_LIMIT", 0.05)

    seen = started(forgets).play(TWO)

    assert seen.answers == (Answer((1, 2, 3), "", 2, (1, 1), 1), Answer((4,), "abort"))


def test_what_sglang_raises_in_the_scheduler_is_the_end_of_the_session(started: Started) -> None:
    def raises(engine: Engine) -> None:
        engine.gathers()
        engine.say(Played(SessionSeen(2, answers=INNER, error="AttributeError: raw_num_token"), last=True))

    player = started(raises)

    seen = player.play(TWO)

    assert (seen.turns, seen.error) == (2, "AttributeError: raw_num_token")
    assert [got.finished for got in seen.answers] == ["", ""]
    assert player.broken


def test_what_sglang_raises_between_sessions_is_of_the_session_before(started: Started) -> None:
    def leaks(engine: Engine) -> None:
        engine.gathers()
        engine.answer(*GIVEN)
        engine.say(Played(SEEN))
        engine.say(Played(SessionSeen(0, error="ValueError: memory leak"), last=True))

    player = started(leaks, flushes=False)

    seen = player.play(TWO)

    assert (seen.turns, seen.error) == (7, "ValueError: memory leak")
    assert player.broken


def test_a_scheduler_that_has_come_to_a_stand_ends_the_server(started: Started) -> None:
    def stands(engine: Engine) -> None:
        engine.gathers()
        engine.say(Played(SEEN, last=True))

    player = started(stands)

    assert player.play(TWO).error == ""
    assert player.broken


def test_a_scheduler_that_is_gone_without_a_word_is_a_crash(started: Started) -> None:
    def dies(engine: Engine) -> None:
        engine.gathers()
        engine.control.close()

    with pytest.raises(EngineGone):
        started(dies).play(TWO)


def test_what_the_harness_could_not_do_there_is_its_fault(started: Started) -> None:
    def fails(engine: Engine) -> None:
        engine.gathers()
        engine.say(Played(SessionSeen(0), last=True, fault="KeyError: 'x' (watch.py:1)"))

    player = started(fails)

    with pytest.raises(EngineFault, match=r"KeyError: 'x' \(watch.py:1\)"):
        player.play(TWO)
    assert player.broken


def ends_while_starting(*words: Word) -> Callable[[Connection], Any]:
    """An engine whose scheduler says `words` and is no more, which sglang tells in words of its own."""

    def made(control: Connection) -> Any:
        def start(**arguments: Any) -> Any:
            for word in words:
                control.send_bytes(msgspec.msgpack.encode(word))
            raise RuntimeError("Rank 0 scheduler died during initialization")

        return start

    return made


def test_an_engine_that_does_not_start_says_what_its_scheduler_said(monkeypatch: pytest.MonkeyPatch) -> None:
    word = Played(SessionSeen(0, error="ValueError: no such draft"), last=True)
    monkeypatch.setattr(engine, "_engine_class", ends_while_starting(Here(), word))

    with pytest.raises(NotStarted, match="ValueError: no such draft"):
        EnginePlayer(TWO)


def test_an_engine_that_does_not_start_before_there_is_a_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_engine_class", ends_while_starting())

    with pytest.raises(server.Refused):
        EnginePlayer(TWO)


def test_a_scheduler_that_is_gone_without_a_word_while_it_starts_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_engine_class", ends_while_starting(Here()))

    with pytest.raises(EngineGone):
        driver.SessionDriver().observe(Observe(1.0, (TWO,)))


def test_the_driver_answers_for_a_session_that_ends_its_engine_and_is_of_no_more_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    word = Played(SessionSeen(0, error="ValueError: no such draft"), last=True)
    monkeypatch.setattr(engine, "_engine_class", ends_while_starting(Here(), word))

    observed = driver.SessionDriver().observe(Observe(1.0, (TWO, TWO)))

    assert observed.last
    assert [one.session for one in observed.observations] == [SessionSeen(0, error="ValueError: no such draft")]


def test_the_driver_tells_a_fault_of_the_harness_in_the_schedulers_process(monkeypatch: pytest.MonkeyPatch) -> None:
    word = Played(SessionSeen(0), last=True, fault="KeyError: 'x' (watch.py:1)")
    monkeypatch.setattr(engine, "_engine_class", ends_while_starting(Here(), word))

    (observation,) = driver.SessionDriver().observe(Observe(1.0, (TWO,))).observations

    assert observation.fault == Fault("driver", "KeyError: 'x' (watch.py:1)")


def test_tokens_beyond_the_end_are_cut() -> None:
    assert answer(GIVEN["0"], 3).tokens == (1, 2, 3)


def test_an_answer_without_speculation_counts_no_verifies() -> None:
    given = {"output_ids": [1], "meta_info": {"finish_reason": {"type": "length"}}}

    assert answer(given, 1) == Answer((1,), "length")


def test_retractions_are_the_schedulers() -> None:
    assert merged(Answer((1,), "length"), Answer((1,), "FINISH_LENGTH", retractions=2)).retractions == 2
