"""The history of nights: nothing is lost, nothing broken is built upon, and a failed night is no baseline."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.errors import CannotJudge, UsageError
from harness.parity.history import Night, append, read, trends

FIRST = datetime(2026, 9, 1, 3, tzinfo=UTC)


def night(number: int, length: float, passed: bool = True, subject: str = "910B") -> Night:
    return Night(1, FIRST + timedelta(days=number), subject, passed, {"acceptance": length})


def test_what_was_appended_is_read_again_in_the_order_of_time(tmp_path: Path) -> None:
    nights = [night(2, 4.7), night(0, 4.8), night(1, 4.9, passed=False)]
    for one in nights:
        append(tmp_path / "new" / "h.jsonl", one)
    assert read(tmp_path / "new" / "h.jsonl") == sorted(nights, key=lambda one: one.when)


def test_appending_leaves_every_byte_before_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    append(file, night(0, 4.8))
    before = file.read_bytes()
    append(file, night(1, 4.8))
    assert file.read_bytes().startswith(before)


def test_a_failed_night_is_never_in_the_baseline() -> None:
    (trend,) = trends([night(0, 4.8), night(1, 1.0, passed=False), night(2, 5.0)])
    assert trend.baseline == pytest.approx(4.9)


def test_after_a_step_only_nights_since_then_are_the_baseline_and_failed_ones_give_none() -> None:
    good, bad = [night(n, 4.8) for n in range(9)], [night(n, 1.9, passed=False) for n in range(9, 18)]
    (fallen,) = trends(good + bad)
    assert [step.night for step in fallen.steps] == [9]
    assert fallen.baseline is None

    (level,) = trends(good)
    assert level.baseline == pytest.approx(4.8)


def test_nights_of_different_subjects_are_different_trends() -> None:
    found = trends([night(0, 4.8), night(1, 2.0, subject="310P"), night(2, 4.8)])
    assert [(trend.subject, trend.values) for trend in found] == [("910B", [4.8, 4.8]), ("310P", [2.0])]


WHOLE = b'{"schema":1,"when":"2026-09-01T03:00:00Z","subject":"","passed":true,"values":{}}\n'
BROKEN = {
    "cut off within a line": (WHOLE + WHOLE[:40], ":2 is no night of a history"),
    "cut off at the end of a line": (WHOLE + WHOLE[:-1], ":2 has no end"),
    "of a newer schema": (WHOLE.replace(b'"schema":1', b'"schema":2'), ":1 has schema 2"),
    "not JSON": (b"hello\n", ":1 is no night of a history"),
}


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN)
def test_a_broken_history_is_refused_by_its_line_and_nothing_is_added_to_it(
    data: bytes, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "h.jsonl"
    file.write_bytes(data)
    with pytest.raises(UsageError) as refused:
        append(file, night(0, 4.8))
    assert words in str(refused.value)
    assert file.read_bytes() == data


def test_a_history_that_is_not_there_says_how_to_begin_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no history at .*: `harness history --add"):
        read(tmp_path / "h.jsonl")


def test_a_history_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises((CannotJudge, UsageError), match=r"cannot (read|write)"):
        append(tmp_path / "file" / "h.jsonl", night(0, 4.8))
