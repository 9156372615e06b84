"""The scan that makes a run for each release, and the runs that it keeps."""

import multiprocessing.dummy
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from harness.bisect import identity, shelf
from harness.bisect import scan as module
from harness.bisect.scan import scan
from harness.campaign.profile import PROFILES
from harness.campaign.run import Plan, Run
from harness.errors import Exit
from harness.scenario.case import SCHEMA, Case
from harness.subject.source import Source
from tests.runs import BLOCK_TWICE, info, made_run

CASE = Case(SCHEMA, BLOCK_TWICE.scenario, "kv-lengths")
PLAN = Plan((), PROFILES["dev"], 0)
SOURCES = [Source(f"0.5.{minor}", "release", f"/nonexistent/0.5.{minor}", f"0.5.{minor}") for minor in (15, 16, 17)]

FakeRun = Callable[..., Run]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No run that was kept before."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def scan_here(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeRun], None]:
    """Make a scan use threads of this process, and another `run`."""

    def install(run: FakeRun) -> None:
        threads = SimpleNamespace(get_context=lambda method: multiprocessing.dummy)
        monkeypatch.setattr(module, "multiprocessing", threads)
        monkeypatch.setattr(module, "run", run)

    return install


def ignore(*event: Any) -> None:
    """Progress that nobody looks at."""


def test_runs_come_back_in_the_order_of_their_sources(scan_here: Callable[[FakeRun], None]) -> None:
    scan_here(lambda source, plan, progress: made_run(subject=info(source.release)))
    runs = scan(SOURCES, PLAN, ignore, workers=3)
    assert [run.subject.release for run in runs] == ["0.5.15", "0.5.16", "0.5.17"]


def test_a_run_that_raises_is_unknown_and_takes_no_other_down(scan_here: Callable[[FakeRun], None]) -> None:
    def run(source: Source, plan: Plan, progress: Any) -> Run:
        if source.release == "0.5.16":
            raise ZeroDivisionError("division by zero")
        return made_run(BLOCK_TWICE, subject=info(source.release))

    scan_here(run)
    runs = scan(SOURCES, PLAN, ignore)
    assert [run.exit_status for run in runs] == [Exit.FINDINGS, Exit.UNKNOWN, Exit.FINDINGS]
    assert runs[1].subject.release == "0.5.16"
    assert runs[1].unknown == {"subject": "the run ended early: ZeroDivisionError: division by zero"}


def test_progress_is_told_with_the_release(scan_here: Callable[[FakeRun], None]) -> None:
    def run(source: Source, plan: Plan, progress: Any) -> Run:
        progress("sweep", 1, 2)
        return made_run(subject=info(source.release))

    scan_here(run)
    events: list[tuple[Any, ...]] = []
    scan(SOURCES, PLAN, lambda *event: events.append(event), workers=1)
    assert events == [(release, "sweep", 1, 2) for release in ("0.5.15", "0.5.16", "0.5.17")]


@pytest.fixture
def counted(scan_here: Callable[[FakeRun], None]) -> list[str]:
    """The releases that are run, each time that one is; every run finds the double count."""
    made: list[str] = []

    def run(source: Source, plan: Plan, progress: Any) -> Run:
        made.append(source.release)
        return made_run(BLOCK_TWICE, subject=info(source.release, source.spec))

    scan_here(run)
    return made


def test_what_was_run_before_is_kept_and_comes_back_the_same(counted: list[str]) -> None:
    first = scan(SOURCES[:2], PLAN, ignore)
    assert scan(SOURCES, PLAN, ignore)[:2] == first
    assert sorted(counted) == ["0.5.15", "0.5.16", "0.5.17"]


def test_another_plan_is_another_run(counted: list[str]) -> None:
    for plan in (PLAN, PLAN._replace(seed=1), PLAN._replace(groups=("guard",)), PLAN._replace(pinned=(CASE,))):
        scan(SOURCES[:1], plan, ignore)
    assert counted == ["0.5.15"] * 4


def test_everything_is_run_anew_on_demand(counted: list[str]) -> None:
    scan(SOURCES[:1], PLAN, ignore)
    scan(SOURCES[:1], PLAN, ignore, anew=True)
    assert counted == ["0.5.15"] * 2


def test_a_plan_that_draws_other_scenarios_every_time_is_never_kept(counted: list[str]) -> None:
    for _ in range(2):
        scan(SOURCES[:1], PLAN._replace(profile=PROFILES["nightly"]), ignore)
    assert counted == ["0.5.15"] * 2


@pytest.mark.parametrize("changed", ["file", "harness", "variable"])
def test_a_run_is_made_again_when_its_sglang_the_harness_or_the_surroundings_have_changed(
    counted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    file = tmp_path / "sglang" / "backend.py"
    file.parent.mkdir()
    file.write_text("right")
    source = Source("0.5.15", "release", str(tmp_path), "0.5.15")
    scan([source], PLAN, ignore)
    match changed:
        case "file":
            file.write_text("wrong")
        case "harness":
            monkeypatch.setattr(shelf, "harness_digest", lambda: "another harness")
        case "variable":
            monkeypatch.setenv("ASCEND_USE_FIA", "1")
    scan([source], PLAN, ignore)
    assert counted == ["0.5.15"] * 2


def test_only_the_newest_runs_of_a_release_are_kept(
    counted: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "MOST_KEPT", 3)
    for seed in range(shelf.MOST_KEPT + 2):
        scan(SOURCES[:1], PLAN._replace(seed=seed), ignore)
    made = len(counted)
    scan(SOURCES[:1], PLAN._replace(seed=made - 1), ignore)

    assert len(list((tmp_path / "cache" / "runs").iterdir())) == shelf.MOST_KEPT
    assert len(counted) == made


def test_a_run_without_a_subject_is_made_again(scan_here: Callable[[FakeRun], None]) -> None:
    answers = iter([made_run(unknown={"subject": "lost"}), made_run(BLOCK_TWICE)])
    scan_here(lambda source, plan, progress: next(answers))
    scan(SOURCES[:1], PLAN, ignore)
    (second,) = scan(SOURCES[:1], PLAN, ignore)
    assert second.findings == [BLOCK_TWICE]


def test_a_kept_run_that_is_cut_short_is_made_again(counted: list[str], tmp_path: Path) -> None:
    scan(SOURCES[:1], PLAN, ignore)
    (file,) = (tmp_path / "cache" / "runs").iterdir()
    file.write_bytes(file.read_bytes()[:-20])
    (run,) = scan(SOURCES[:1], PLAN, ignore)
    assert run.findings == [BLOCK_TWICE]
    assert counted == ["0.5.15"] * 2


def test_a_harness_digest_is_of_its_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "PACKAGE", tmp_path / "harness")
    monkeypatch.setattr(identity, "FIXTURES", tmp_path / "fixtures")
    (tmp_path / "harness").mkdir()
    digests = []
    for name, content in (("a.py", "1"), ("a.py", "2"), ("b.json", "2")):
        (tmp_path / "harness" / name).write_text(content)
        digests.append(identity.harness_digest.__wrapped__())
    (tmp_path / "harness" / "__pycache__").mkdir()
    (tmp_path / "harness" / "__pycache__" / "a.pyc").write_text("compiled")
    assert len(set(digests)) == 3
    assert identity.harness_digest.__wrapped__() == digests[-1]


def test_nothing_is_scanned_without_sources(scan_here: Callable[[FakeRun], None]) -> None:
    scan_here(lambda source, plan, progress: made_run())
    assert scan([], PLAN, ignore) == []


def test_a_run_that_raises_in_a_process_of_its_own_is_unknown() -> None:
    (run,) = scan(SOURCES[:1], PLAN._replace(groups=("nonsense",)), ignore, workers=1)
    assert run.unknown["subject"].startswith("the run ended early: UsageError: there is no check group 'nonsense'")


class Killer(str):
    """A spec that ends the process which receives it, as the system does when memory runs out."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)


def test_a_run_whose_process_is_killed_takes_no_other_down() -> None:
    sources = [SOURCES[0], replace(SOURCES[1], spec=Killer()), SOURCES[2]]
    runs = scan(sources, PLAN._replace(groups=("nonsense",)), ignore, workers=1)
    assert ["UsageError" in run.unknown["subject"] for run in runs] == [True, False, True]


#: Scans two releases, whose subjects say that they are there and then nothing.
SCANNING = """
import sys
from harness.bisect.scan import scan
from tests.bisect.test_scan import PLAN, SOURCES, ignore

if __name__ == "__main__":
    subject = f"exec 3>> {sys.argv[1]}; echo started >&3; while read -r line; do :; done"
    scan(SOURCES[:2], PLAN._replace(through=("sh", "-c", subject)), ignore, workers=2)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process cannot be made to end with its parent")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_a_scan_that_is_killed_leaves_no_run_and_no_subject_behind(tmp_path: Path, how: signal.Signals) -> None:
    os.mkfifo(tmp_path / "subjects")
    (tmp_path / "scanning.py").write_text(SCANNING)
    subjects = os.open(tmp_path / "subjects", os.O_RDONLY | os.O_NONBLOCK)
    command = [sys.executable, str(tmp_path / "scanning.py"), str(tmp_path / "subjects")]
    here = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=here) as scanning:
        assert scanning.stderr is not None
        told = b""
        while told.count(b"started") < 2:
            more = _read(subjects)
            assert more, "a subject has ended by itself"
            told += more
        scanning.send_signal(how)
        # Every run holds the scan's stderr, and every subject the FIFO: both end when the last one has.
        while _read(subjects):
            pass
        while _read(scanning.stderr.fileno()):
            pass
    os.close(subjects)
    assert scanning.returncode == -how


def _read(descriptor: int) -> bytes:
    """What comes next; nothing at the end, which must come, and be it late."""
    ready, _, _ = select.select([descriptor], [], [], 120)
    assert ready, "a process that should have ended holds on"
    return os.read(descriptor, 4096)
