"""What a subject is asked, on disk: there while nobody has answered, and told of when nobody is left to ask."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import files
from harness.errors import CannotJudge
from harness.scenario import GateScenario, MetadataScenario, Request
from harness.scenario.case import read_case, read_cases
from harness.subject.pending import Pending, Unanswered, unanswered
from harness.subject.source import Source

SOURCE = Source("git:../sglang@main", "git", "/cache/0.5.18", "0.5.18+3.gabc")
GATE = GateScenario("npu")
VERIFY = MetadataScenario("DFLASH", "target_verify", ((Request(300),),), draft_tokens=4)


@pytest.fixture
def pending(tmp_path: Path) -> Iterator[Pending]:
    own = Pending(SOURCE, "emulated", tmp_path)
    yield own
    own.close()


def abandon(pending: Pending) -> Unanswered:
    """End as a harness that is killed, and tell what is left."""
    pending.lock.close()
    return Unanswered(pending.path, SOURCE.spec, "emulated")


def test_one_scenario_is_a_case(pending: Pending) -> None:
    pending.write([VERIFY])
    case = read_case(pending.path)
    assert (case.scenario, case.sglang) == (VERIFY, SOURCE.release)


def test_the_scenarios_of_a_frame_are_an_array_of_cases(pending: Pending) -> None:
    pending.write([GATE, VERIFY])
    assert [case.scenario for case in read_cases(pending.path)] == [GATE, VERIFY]


def test_the_next_frame_takes_the_place_of_the_last(pending: Pending) -> None:
    pending.write([GATE, VERIFY])
    pending.write([VERIFY])
    assert read_case(pending.path).scenario == VERIFY


def test_nothing_is_left_of_what_was_answered(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    pending.clear()
    abandon(pending)
    assert unanswered(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_after_closing(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    pending.clear()
    pending.close()
    assert list(tmp_path.iterdir()) == []


def test_what_was_never_answered_is_left_with_who_was_asked(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    left = abandon(pending)
    assert unanswered(tmp_path) == [left]


def test_what_was_never_answered_is_left_after_closing(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    pending.close()
    assert unanswered(tmp_path) == [abandon(pending)]


def test_it_is_left_until_somebody_deletes_it(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    left = abandon(pending)
    assert unanswered(tmp_path) == unanswered(tmp_path) == [left]
    left.path.unlink()
    assert unanswered(tmp_path) == []


def test_what_a_living_harness_asks_is_not_left(tmp_path: Path, pending: Pending) -> None:
    pending.write([VERIFY])
    assert unanswered(tmp_path) == []
    assert pending.path.exists()


def test_two_subjects_of_one_sglang_have_two_files(tmp_path: Path, pending: Pending) -> None:
    other = Pending(SOURCE, "emulated", tmp_path)
    pending.write([VERIFY])
    other.write([GATE])
    assert read_case(pending.path).scenario == VERIFY
    assert len({abandon(pending), abandon(other)}) == len(unanswered(tmp_path)) == 2


@pytest.mark.parametrize("damage", ["", "{", "[]", json.dumps({"spec": "0.5.18"})])
def test_a_folder_that_says_not_who_was_asked_is_passed_over(tmp_path: Path, pending: Pending, damage: str) -> None:
    pending.write([VERIFY])
    (pending.folder / "subject.json").write_text(damage)
    abandon(pending)
    assert unanswered(tmp_path) == []


def test_without_a_folder_nothing_is_left(tmp_path: Path) -> None:
    assert unanswered(tmp_path / "none") == []


@pytest.mark.parametrize("odd", ["../../escape", "/etc/passwd", "..", "null\0byte"])
def test_no_spec_leads_out_of_the_folder(tmp_path: Path, odd: str) -> None:
    own = Pending(Source(odd, "directory", "/sglang", ""), "emulated", tmp_path)
    assert own.folder.parent == tmp_path
    own.close()


def test_a_folder_that_cannot_be_made_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CannotJudge, match=r"^cannot note in \S+ what the subject is asked: .*; run the harness in .*\.$"
    ):
        Pending(SOURCE, "emulated", tmp_path / "file")


@pytest.mark.parametrize(("device", "synced"), [("emulated", False), ("npu", True)])
def test_a_scenario_outlives_the_machine_where_the_device_may_take_it_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str, synced: bool
) -> None:
    calls: list[int] = []
    own = Pending(SOURCE, device, tmp_path)
    monkeypatch.setattr(files.os, "fsync", calls.append)
    own.write([VERIFY])
    assert bool(calls) == synced
    own.clear()
    own.close()
