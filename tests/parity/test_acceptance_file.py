"""The file of a run: what is kept, what is refused, and in which words."""

from pathlib import Path

import msgspec
import pytest

from harness.errors import CannotJudge, UsageError
from harness.parity.acceptance_file import append, drop_torn_line, read
from harness.parity.acceptance_run import Ended, Step, require_whole
from tests.parity.made_runs import SETTING, alike, records, reply, scored, written


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    answers = alike()
    made = [*records(answers), Step(0, 4, 3), Ended("the power went")]

    run = read(written(tmp_path, made))

    assert run.replies == {answer.number: answer for answer in answers}
    assert run.own[3] == scored(answers[3])
    assert (run.steps, run.ended) == ({(0, 4): Step(0, 4, 3)}, ("the power went",))


def test_a_record_that_was_not_written_to_its_end_is_asked_for_again(tmp_path: Path) -> None:
    path = written(tmp_path, [reply(0), reply(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])

    assert list(read(path).replies) == [0]
    drop_torn_line(path)
    append(path, reply(1))
    assert path.read_bytes() == whole


def test_the_digest_is_that_of_the_answers_in_whatever_order_they_came(tmp_path: Path) -> None:
    one = read(written(tmp_path, [reply(0), reply(1)]))
    other = read(written(tmp_path, [reply(1), reply(0)], name="other"))
    different = read(written(tmp_path, [reply(0), reply(1, tokens=[9])], name="different"))

    assert one.digest == other.digest != different.digest


def _changed(kind: str, **changes: object) -> bytes:
    record = {"reply": reply(0), "step": Step(0, 4, 3), "scored": scored(reply(0))}[kind]
    return msgspec.json.encode(msgspec.to_builtins(record) | changes) + b"\n"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{]\n", "is no record of an acceptance run: JSON is malformed"),
        (b'{"kind":"dream"}\n', "is no record of an acceptance run: Invalid value 'dream'"),
        (_changed("reply", number=24), "cannot be: it is of prompt 24, and there are 24"),
        (_changed("reply", verifies=11), "histogram has 10 verifies and 21 correct drafts, and it counts 11 and 21"),
        (_changed("reply", verifies=-1), "cannot be: it counts below zero"),
        (_changed("reply", histogram=[2, 1, 1, 6, 0]), "its histogram goes up to 4 of 3 drafts"),
        (_changed("step", correct=4), "it accepts 4 of 3 drafts after 4 tokens"),
        (_changed("scored", gaps=[1.0]), "it has not one gap for each choice"),
        (_changed("scored", of="theirs"), "is no record of an acceptance run"),
        (b'{"kind":"reply","number":' + b"[" * 100_000 + b"\n", "is no record of an acceptance run"),
    ],
)
def test_a_record_that_cannot_be_is_refused_with_its_line(line: bytes, problem: str, tmp_path: Path) -> None:
    path = written(tmp_path, [reply(0)])
    path.write_bytes(path.read_bytes() + line)

    with pytest.raises(UsageError, match="line 3.*" + problem.replace("'", ".")):
        read(path)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "its first line is missing or cut short"),
        (b'{"kind":"run"', "its first line is missing or cut short"),
        (b"hello\n", "is no acceptance run of this harness"),
        (b'{"kind":"run","schema":1}\n', "is no acceptance run of this harness: .*missing required field"),
        (b'{"kind":"run","schema":2}\n', "has run schema 2, and this harness reads 1"),
        (b"\xff\xfe\n", "is no acceptance run of this harness"),
    ],
)
def test_a_file_that_is_no_run_is_refused(data: bytes, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_bytes(data)

    with pytest.raises(UsageError, match=problem):
        read(path)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"cannot read the run nowhere/run: No such file or directory\."):
        read(Path("nowhere/run"))


def test_a_run_that_is_not_whole_says_why_and_how_it_goes_on(tmp_path: Path) -> None:
    run = read(written(tmp_path, [reply(0), Ended("the server was killed.")]))

    with pytest.raises(
        CannotJudge, match=rf"answers to 1 of {SETTING.count} prompts \(the server was killed\).*goes on"
    ):
        require_whole(run)
