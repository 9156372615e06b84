"""Recordings: what is read is what was seen; a kill changes nothing; what is not whole is refused in one sentence."""

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from safetensors.numpy import load_file

from harness.errors import CannotJudge, UsageError
from harness.parity import writing
from harness.parity.recording import (
    FILES,
    MANIFEST,
    OBSERVATIONS,
    RUN,
    SCENARIOS,
    SCHEMA,
    Listed,
    Manifest,
    Recording,
    Run,
    listed,
)
from harness.parity.writing import record
from harness.scenario.observation import Fault, Observation
from tests.ideal import observe
from tests.parity.sides import INFO, IdealSide
from tests.parity.sides import SCENARIOS as DRAWN

RECORDED = Run(SCHEMA, INFO, "dev", 0, (), len(DRAWN))
LOST = 2


def plant(number: int, observed: Observation) -> Observation:
    """One scenario costs the subject."""
    return Observation(fault=Fault("crash", "it died", "last words")) if number == LOST else observed


def recorded(folder: Path, side: IdealSide | None = None) -> Path:
    record(side or IdealSide(plant), DRAWN, RECORDED, folder, lambda done, total: None)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("recordings") / "run")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_recording_answers_what_its_subject_has_answered(whole: Path) -> None:
    with Recording.open(whole) as recording:
        seen = recording.observe(DRAWN)

        assert recording.info == INFO
        assert recording.scenarios == DRAWN
    right = observe(DRAWN)
    right[LOST] = plant(LOST, right[LOST])
    assert seen == right


def test_a_scenario_that_was_not_recorded_is_a_fault(whole: Path) -> None:
    other = msgspec.structs.replace(DRAWN[0], builds=2)
    with Recording.open(whole) as recording:
        (seen,) = recording.observe([other])

    assert seen.fault is not None
    assert seen.fault.cause == "unsupported"


def test_the_arrays_can_be_read_with_the_library_alone(whole: Path) -> None:
    tensors = load_file(whole / OBSERVATIONS)

    assert tensors["0/0/output"].shape == observe(DRAWN[:1])[0].seen[0].output.shape  # type: ignore[union-attr]
    assert {path.name for path in whole.iterdir()} == {*FILES, MANIFEST}


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("asked", [0, 9, len(DRAWN) - 1])
def test_a_recording_that_ends_half_way_goes_on_and_ends_byte_equal(whole: Path, tmp_path: Path, asked: int) -> None:
    def dying(number: int, observed: Observation) -> Observation:
        if number == asked:
            raise Killed
        return plant(number, observed)

    folder = tmp_path / "run"
    with pytest.raises(Killed):
        recorded(folder, IdealSide(dying))
    assert not folder.exists()
    again = IdealSide(plant)
    recorded(folder, again)

    assert contents(folder) == contents(whole)
    assert again.asked <= len(DRAWN) - asked // writing.BATCH * writing.BATCH
    assert os.listdir(tmp_path) == ["run"]


def test_a_recording_goes_on_with_the_scenarios_that_it_was_begun_with(whole: Path, tmp_path: Path) -> None:
    def dying(number: int, observed: Observation) -> Observation:
        if number == 9:
            raise Killed
        return plant(number, observed)

    with pytest.raises(Killed):
        recorded(tmp_path / "run", IdealSide(dying))
    writing.record(IdealSide(plant), DRAWN[::-1], RECORDED, tmp_path / "run", lambda done, total: None)

    assert contents(tmp_path / "run") == contents(whole)


@pytest.mark.parametrize("cut", [1, 5000])
@pytest.mark.parametrize("name", [SCENARIOS, writing.ARRAYS])
def test_what_a_kill_has_left_of_a_scenario_is_recorded_again(whole: Path, tmp_path: Path, name: str, cut: int) -> None:
    def dying(number: int, observed: Observation) -> Observation:
        if number == len(DRAWN) - 1:
            raise Killed
        return plant(number, observed)

    with pytest.raises(Killed):
        recorded(tmp_path / "run", IdealSide(dying))
    left = tmp_path / "run.partial" / name
    os.truncate(left, left.stat().st_size - cut)
    recorded(tmp_path / "run")

    assert contents(tmp_path / "run") == contents(whole)


IN_A_PROCESS = """
import os, signal, sys
from pathlib import Path
from tests.parity.sides import IdealSide
from tests.parity.test_recording import plant, recorded

def dying(number, observed):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return plant(number, observed)

recorded(Path(sys.argv[1]), IdealSide(dying))
"""


def test_a_recording_that_is_killed_goes_on_and_ends_byte_equal(tmp_path: Path) -> None:
    """All in processes of their own: what Hypothesis draws depends on the modules that are loaded."""
    root = Path(__file__).parents[2]

    def record(name: str, dies_at: int) -> int:
        command = [sys.executable, "-c", IN_A_PROCESS, tmp_path / name, str(dies_at)]
        return subprocess.run(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, check=False).returncode

    assert record("killed", 9) == -signal.SIGKILL
    assert record("killed", -1) == 0
    assert record("whole", -1) == 0
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_another_run_does_not_go_on_with_it(tmp_path: Path) -> None:
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / RUN).write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORDED, seed=1)))

    with pytest.raises(UsageError, match="an unfinished recording of another run"):
        recorded(tmp_path / "run")


def test_a_damaged_list_of_scenarios_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / RUN).write_bytes(msgspec.json.encode(RECORDED))
    (tmp_path / "run.partial" / writing.DRAWN).write_bytes(b'{"pool":')

    with pytest.raises(UsageError, match=r"drawn\.jsonl is damaged \(.*\): delete .*run\.partial, and record anew"):
        recorded(tmp_path / "run")


def test_a_directory_that_is_there_is_not_written_over(whole: Path) -> None:
    with pytest.raises(UsageError, match="is there already"):
        recorded(whole)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(CannotJudge, match="cannot record in"):
        recorded(tmp_path / "file" / "run")


def damaged(whole: Path, folder: Path, damage: Callable[[Path], object]) -> str:
    """What opening a copy of `whole` says after `damage`; nothing where it opens."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    damage(folder)
    try:
        Recording.open(folder).close()
    except UsageError as error:
        return str(error)
    return ""


def rewritten(name: str, data: bytes) -> Callable[[Path], object]:
    """The file `name` holds `data`, and the manifest vouches for it: somebody did it on purpose."""

    def damage(folder: Path) -> None:
        (folder / name).write_bytes(data)
        files = {file: listed(folder / file) for file in FILES}
        (folder / MANIFEST).write_bytes(msgspec.json.encode(Manifest(SCHEMA, files)))

    return damage


def vouching(files: dict[str, Listed], schema: int = SCHEMA) -> Callable[[Path], object]:
    """The manifest names other files besides."""

    def damage(folder: Path) -> None:
        own = {file: listed(folder / file) for file in FILES}
        (folder / MANIFEST).write_bytes(msgspec.json.encode(Manifest(schema, own | files)))

    return damage


LINE = b'{"scenario":{"kind":"metadata","algorithm":"NONE","mode":"decode","rounds":[]}}\n'
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "no manifest": (lambda folder: (folder / MANIFEST).unlink(), "manifest.json cannot be read"),
    "no arrays": (lambda folder: (folder / OBSERVATIONS).unlink(), "observations.safetensors is missing"),
    "a newer schema": (vouching({}, SCHEMA + 1), "has recording schema 2, and this harness reads up to 1: update"),
    "an older schema": (vouching({}, 0), "manifest.json is not as it was written"),
    "a name that leads out": (vouching({"../../etc/passwd": Listed(1, "")}), "names '../../etc/passwd', which no"),
    "a name with a null byte": (vouching({"a\0b": Listed(1, "")}), r"names 'a\x00b', which no recording has"),
    "a link": (
        lambda folder: ((folder / RUN).rename(folder / "else"), (folder / RUN).symlink_to("else")),
        "run.json is missing, or no file",
    ),
    "a scenario that cannot be": (
        rewritten(SCENARIOS, LINE),
        "line 1 of scenarios.jsonl has a scenario that cannot be",
    ),
    "no scenario": (rewritten(SCENARIOS, b""), f"scenarios.jsonl has 0 scenarios and not {len(DRAWN)}"),
    "a line that is none": (rewritten(SCENARIOS, b"[" * 100_000 + b"\n"), "line 1 of scenarios.jsonl"),
    "arrays that are none": (rewritten(OBSERVATIONS, b"no tensors"), "is no whole recording"),
    "arrays without a header": (rewritten(OBSERVATIONS, b"\xff" * 64), "is no whole recording"),
    "no array at all": (rewritten(OBSERVATIONS, b"\x02" + b"\0" * 7 + b"{}"), "has no 0/0/"),
    "a run that is none": (rewritten(RUN, b"{}"), "is no whole recording"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_recording_that_is_not_whole_is_refused_in_one_sentence(whole: Path, tmp_path: Path, name: str) -> None:
    damage, expected = DAMAGES[name]
    said = damaged(whole, tmp_path / "run", damage)

    assert expected in said
    assert "\n" not in said
    assert str(tmp_path / "run") in said


def test_an_untouched_copy_is_whole(whole: Path, tmp_path: Path) -> None:
    assert damaged(whole, tmp_path / "run", lambda folder: None) == ""


def test_a_thousand_random_corruptions_are_all_refused(tmp_path: Path) -> None:
    """Of a small recording: flipped bits, cuts, and bytes put in, anywhere in any of its files."""
    folder = tmp_path / "run"
    few = DRAWN[:2]
    record(IdealSide(), few, msgspec.structs.replace(RECORDED, scenarios=len(few)), folder, lambda done, total: None)
    chance = random.Random(31739)
    accepted = []
    for number in range(1000):
        path = folder / chance.choice((*FILES, MANIFEST))
        data = path.read_bytes()
        place = chance.randrange(len(data))
        kind = number % 4
        if kind == 0:
            damage = data[:place]
        elif kind == 1:
            damage = data[:place] + chance.randbytes(1 + number % 7) + data[place:]
        else:
            damage = data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        path.write_bytes(damage)
        try:
            Recording.open(folder).close()
            accepted.append((path.name, kind, place))
        except UsageError as error:
            assert "\n" not in str(error)
        path.write_bytes(data)

    assert accepted == []
    Recording.open(folder).close()
