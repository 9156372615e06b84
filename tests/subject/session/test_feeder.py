"""In the scheduler's process of an engine: requests are held until their turn, and what is seen is told."""

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.subject.session import inside
from harness.subject.session.inside import Feeder, told
from harness.subject.session.stage import Due, Over
from harness.subject.session.words import Begin, Gathered, Played, Word

THREE = SessionScenario("DFLASH", (Visit(5, 3), Visit(5, 3, arrives=1, aborted=2), Visit(5, 3, arrives=2)))
#: What is due at each turn of it.
TURNS = (Due((0,), ()), Due((1,), ()), Due((2,), (1,)))


class Stage:
    """Says what is due, and then that the session is over."""

    def __init__(self, turns: tuple[Due, ...] = TURNS, stalled: bool = False) -> None:
        self.turns = list(turns)
        self.stalled = stalled
        self.begun: SessionScenario | None = None

    def begin(self, scenario: SessionScenario) -> None:
        self.begun = scenario

    def due(self) -> Due:
        if not self.turns:
            raise Over
        return self.turns.pop(0)

    def seen(self, error: str = "") -> SessionSeen:
        return SessionSeen(3, error=error)


class TokenizedGenerateReqInput(SimpleNamespace):
    """By its name, what sglang's tokenizer sends."""


class AbortReq(SimpleNamespace):
    """The same for an abort."""


class FlushCacheReqInput(SimpleNamespace):
    """Something that is no session's."""


def request(number: int) -> Any:
    return TokenizedGenerateReqInput(rid=str(number))


def abort(number: int) -> Any:
    return AbortReq(rid=str(number))


class Tokenizer:
    """What comes from the tokenizer, one call after the other; nothing after that."""

    def __init__(self, *calls: list[Any]) -> None:
        self.calls = list(calls)

    def __call__(self) -> list[Any]:
        return self.calls.pop(0) if self.calls else []


@pytest.fixture
def ends() -> Iterator[tuple[Connection, Connection]]:
    """The worker's end of the pipe, and the scheduler's."""
    here, there = multiprocessing.Pipe()
    yield here, there
    here.close()
    there.close()


def begin(control: Connection, scenario: SessionScenario = THREE, refused: tuple[int, ...] = ()) -> None:
    control.send_bytes(msgspec.msgpack.encode(Begin(scenario, refused)))


def words(control: Connection) -> list[Word]:
    """What has been told so far."""
    said = []
    while control.poll():
        said.append(msgspec.msgpack.decode(control.recv_bytes(), type=Word))
    return said


def rids(messages: list[Any]) -> list[tuple[str, str]]:
    return [(type(message).__name__, message.rid) for message in messages]


def test_requests_come_at_their_turns_although_they_are_sent_at_once(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control)
    feeder = Feeder(Stage(), there)  # type: ignore[arg-type]
    tokenizer = Tokenizer([request(2), request(0)], [request(1)], [abort(1)])

    turns = [rids(feeder.turn(tokenizer)) for _ in range(3)]

    assert turns == [
        [("TokenizedGenerateReqInput", "0")],
        [("TokenizedGenerateReqInput", "1")],
        [("TokenizedGenerateReqInput", "2"), ("AbortReq", "1")],
    ]


def test_no_turn_passes_before_all_requests_are_there(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control)
    feeder = Feeder(Stage(), there)  # type: ignore[arg-type]
    late = Tokenizer([], [request(0)], [], [request(1)], [], [request(2), abort(1)])

    assert rids(feeder.turn(late)) == [("TokenizedGenerateReqInput", "0")]
    assert words(control) == [Gathered()]
    assert late.calls == []


def test_a_request_that_never_comes_is_named(
    ends: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    control, there = ends
    begin(control)
    monkeypatch.setattr(inside, "ARRIVAL_LIMIT", 0.0)

    with pytest.raises(RuntimeError, match="the requests 1, 2"):
        Feeder(Stage(), there).turn(Tokenizer([request(0)]))  # type: ignore[arg-type]


def test_what_the_engine_has_refused_is_not_waited_for(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control, refused=(1,))
    feeder = Feeder(Stage(), there)  # type: ignore[arg-type]
    tokenizer = Tokenizer([request(0), request(2)])

    turns = [rids(feeder.turn(tokenizer)) for _ in range(3)]

    assert turns == [[("TokenizedGenerateReqInput", "0")], [], [("TokenizedGenerateReqInput", "2")]]


def test_what_is_no_sessions_passes_at_once(ends: tuple[Connection, Connection]) -> None:
    feeder = Feeder(Stage(), ends[1])  # type: ignore[arg-type]
    flush = FlushCacheReqInput()

    assert feeder.turn(Tokenizer([flush])) == [flush]
    assert feeder.turn(Tokenizer([request(0)], [], [flush])) == [flush]


def test_the_session_is_told_after_a_turn_at_which_sglang_looks_after_its_pools(
    ends: tuple[Connection, Connection],
) -> None:
    control, there = ends
    begin(control)
    feeder = Feeder(Stage(()), there)  # type: ignore[arg-type]
    tokenizer = Tokenizer([request(0), request(1), request(2), abort(1)])

    assert feeder.turn(tokenizer) == []
    assert words(control) == [Gathered()]
    assert feeder.turn(tokenizer) == []
    assert words(control) == [Played(SessionSeen(3))]


def test_a_server_that_has_come_to_a_stand_is_told_to_be_of_no_more_use(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control)
    feeder = Feeder(Stage((), stalled=True), there)  # type: ignore[arg-type]

    feeder.turn(Tokenizer([request(0), request(1), request(2), abort(1)]))

    assert words(control) == [Gathered(), Played(SessionSeen(3), last=True)]


def test_what_a_session_leaves_is_not_taken_for_the_next_ones(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control)
    stage = Stage(TURNS[:1])
    feeder = Feeder(stage, there)  # type: ignore[arg-type]
    tokenizer = Tokenizer([request(0), request(1), request(2), abort(1)])
    for _ in range(3):
        feeder.turn(tokenizer)
    one = SessionScenario("DFLASH", (Visit(5, 3),))
    begin(control, one)
    stage.turns = [Due((0,), ()), Due((), (1,))]
    tokenizer = Tokenizer([request(0)])

    assert rids(feeder.turn(tokenizer)) == [("TokenizedGenerateReqInput", "0")]
    assert feeder.turn(tokenizer) == []


def test_every_receiver_of_the_class_goes_through_the_feeder(ends: tuple[Connection, Connection]) -> None:
    flush = FlushCacheReqInput()

    class Receiver:
        def recv_requests(self, local_reqs: Any = None) -> list[Any]:
            return [flush, *local_reqs]

    Feeder(Stage(), ends[1]).stand_before(Receiver)  # type: ignore[arg-type]

    assert Receiver().recv_requests(local_reqs=[flush]) == [flush, flush]


def sglang_raises(error: Exception) -> Exception:
    """`error`, as raised by a file below a folder `sglang`."""
    code = compile("def fails(error):\n    raise error\n", "/there/sglang/module.py", "exec")
    names: dict[str, Any] = {}
    exec(code, names)
    try:
        names["fails"](error)
    except Exception as raised:
        return raised
    raise AssertionError("it did not raise")


def test_what_sglang_raises_before_it_serves_is_told_as_a_server_that_does_not_start() -> None:
    assert told(sglang_raises(ValueError("no such draft")), None) == Played(
        SessionSeen(0, error="ValueError: no such draft"), last=True
    )


def test_what_sglang_raises_in_a_session_is_told_with_what_was_seen(ends: tuple[Connection, Connection]) -> None:
    control, there = ends
    begin(control)
    feeder = Feeder(Stage(), there)  # type: ignore[arg-type]
    feeder.turn(Tokenizer([request(0), request(1), request(2), abort(1)]))

    word = told(sglang_raises(AttributeError("raw_num_token")), feeder)

    assert word == Played(SessionSeen(3, error="AttributeError: raw_num_token"), last=True)


def test_what_the_harness_cannot_do_is_a_fault_of_its_own() -> None:
    word = told(RuntimeError("the emulated NPU is not here"), None)

    assert word.last
    assert word.seen.error == ""
    assert word.fault.startswith("RuntimeError: the emulated NPU is not here")


def test_memory_that_runs_out_is_not_told() -> None:
    with pytest.raises(MemoryError):
        told(MemoryError(), None)
