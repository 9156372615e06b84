"""Frames over real pipes: whole, in pieces, late, cut and garbled."""

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario import GateScenario, MetadataScenario, Request
from harness.scenario.observation import Array, Fault, Observation, Seen
from harness.subject.frames import (
    MAX_FRAME,
    PREFIX,
    DeadlineError,
    Hello,
    Observe,
    Observed,
    ProtocolError,
    SubjectInfo,
    read_frame,
    write_frame,
)

SOON = 0.05  #: seconds, where nothing ever comes
LATE = 60.0  #: seconds, where something surely comes


class Pipe(NamedTuple):
    """The two ends of a pipe."""

    reading: int
    writing: int


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = Pipe(*os.pipe())
    yield ends
    for descriptor in ends:
        with suppress(OSError):
            os.close(descriptor)


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_frames_come_back_whole_and_in_order(payloads: list[bytes]) -> None:
    reading, writing = os.pipe()
    try:
        for payload in payloads:
            write_frame(writing, payload)
        assert [read_frame(reading) for _ in payloads] == payloads
    finally:
        os.close(reading)
        os.close(writing)


def test_a_frame_larger_than_the_pipe_comes_back_whole(pipe: Pipe) -> None:
    payload = os.urandom(3 << 20)
    writer = threading.Thread(target=write_frame, args=(pipe.writing, payload))
    writer.start()
    read = read_frame(pipe.reading, LATE)
    writer.join()
    assert read == payload


def test_a_frame_written_byte_by_byte_comes_back_whole(pipe: Pipe) -> None:
    frame = PREFIX.pack(5) + b"bytes"

    def dribble() -> None:
        for index in range(len(frame)):
            os.write(pipe.writing, frame[index : index + 1])

    writer = threading.Thread(target=dribble)
    writer.start()
    read = read_frame(pipe.reading, LATE)
    writer.join()
    assert read == b"bytes"


def test_a_frame_is_written_whole_where_the_system_takes_it_in_pieces(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: whole(descriptor, bytes(data)[:2]))
    write_frame(pipe.writing, b"in pieces")
    monkeypatch.undo()
    assert read_frame(pipe.reading, LATE) == b"in pieces"


def test_reading_leaves_the_next_frame_in_the_pipe(pipe: Pipe) -> None:
    os.write(pipe.writing, PREFIX.pack(3) + b"one" + PREFIX.pack(3) + b"two")
    assert read_frame(pipe.reading) == b"one"
    assert read_frame(pipe.reading) == b"two"


def test_reading_what_nobody_writes_ends_at_the_limit(pipe: Pipe) -> None:
    with pytest.raises(DeadlineError):
        read_frame(pipe.reading, SOON)


@pytest.mark.parametrize("begun", [PREFIX.pack(8)[:2], PREFIX.pack(8), PREFIX.pack(8) + b"half"])
def test_a_frame_that_is_begun_and_never_ended_ends_at_the_limit(pipe: Pipe, begun: bytes) -> None:
    os.write(pipe.writing, begun)
    with pytest.raises(DeadlineError):
        read_frame(pipe.reading, SOON)


def test_without_time_left_nothing_is_waited_for(pipe: Pipe) -> None:
    with pytest.raises(DeadlineError):
        read_frame(pipe.reading, 0.0)


@pytest.mark.parametrize("begun", [b"", PREFIX.pack(8)[:2], PREFIX.pack(8), PREFIX.pack(8) + b"half"])
def test_an_end_within_a_frame_is_a_protocol_error(pipe: Pipe, begun: bytes) -> None:
    os.write(pipe.writing, begun)
    os.close(pipe.writing)
    with pytest.raises(ProtocolError, match="the other side closed the connection"):
        read_frame(pipe.reading, LATE)


def test_writing_where_nobody_reads_is_a_protocol_error(pipe: Pipe) -> None:
    os.close(pipe.reading)
    with pytest.raises(ProtocolError, match="the other side does not read: Broken pipe"):
        write_frame(pipe.writing, b"unheard")


@pytest.mark.parametrize("length", [MAX_FRAME + 1, 2**32 - 1])
def test_a_huge_length_is_no_frame(pipe: Pipe, length: int) -> None:
    os.write(pipe.writing, PREFIX.pack(length))
    with pytest.raises(ProtocolError, match=f"a frame of {length} bytes: this is no frame"):
        read_frame(pipe.reading, LATE)


def test_the_longest_length_is_a_frame_still(pipe: Pipe) -> None:
    os.write(pipe.writing, PREFIX.pack(MAX_FRAME))
    with pytest.raises(DeadlineError):
        read_frame(pipe.reading, SOON)


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):\n",
        "Welcome to the machine\n",
        "WARNING",
        "2026-01-31 12:00:00 INFO started\n",
        "    indented\n",
        "\n\n\n\n",
    ],
)
def test_text_is_no_frame(pipe: Pipe, text: str) -> None:
    os.write(pipe.writing, text.encode())
    with pytest.raises(ProtocolError, match="this is no frame"):
        read_frame(pipe.reading, SOON)


@pytest.mark.parametrize(
    "message",
    [
        Hello(info=SubjectInfo("ascend", "0.5.18", "emulated", {"torch": "2.13.0"}, ("DFLASH",), "abc", "0.5.18")),
        Hello(fault=Fault("driver", "no torch", "last words")),
        Observe(30.5, (GateScenario("npu"), MetadataScenario("DFLASH", "target_verify", ((Request(7),),)))),
        Observed((Observation((Seen({"seq_lens": Array.of([[1, -2]])}),)), Observation(verdict="accepted"))),
        Observed(fault=Fault("crash", "killed")),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_is_the_same_on_the_other_side(pipe: Pipe, message: Hello | Observe | Observed) -> None:
    write_frame(pipe.writing, msgspec.msgpack.encode(message))
    assert msgspec.msgpack.decode(read_frame(pipe.reading), type=type(message)) == message


@pytest.mark.parametrize(("count", "last", "right"), [(2, False, True), (1, False, False), (3, False, False)])
def test_an_answer_has_an_observation_for_each_scenario(count: int, last: bool, right: bool) -> None:
    assert Observed((Observation(),) * count, last=last).answers(2) == right


@pytest.mark.parametrize(("count", "right"), [(0, False), (1, True), (2, True), (3, False)])
def test_an_answer_that_ends_with_the_device_has_an_observation_at_least(count: int, right: bool) -> None:
    assert Observed((Observation(),) * count, last=True).answers(2) == right
