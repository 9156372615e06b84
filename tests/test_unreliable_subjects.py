"""Subjects that abort at random, lose their device or never answer: what a run finds and says does not change by it."""

import sys
from pathlib import Path

import pytest

from harness.campaign import run as module
from harness.campaign.profile import Profile
from harness.campaign.run import Plan, run
from harness.errors import Exit
from harness.scenario import MetadataScenario
from harness.scenario.observation import Observation
from harness.scenario.pinned import pinned_cases
from harness.scenario.strategies import Cell
from harness.subject import losses
from harness.subject.losses import Losses
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor
from tests.subject.fake_subject import COMMAND, Start

ONE_IN_TEN = (sys.executable, str(Path(__file__).parent / "subject" / "unreliable.py"), "0.1", "0")
SMALL = Profile(
    "small", examples=2, runs=2, sessions=1, servers=1, sweep_blocks=range(4, 5), sweep_pairs=False, derandomize=True
)
PLAN = Plan(("metadata", "kv-bounds"), SMALL, 0)
CELL = Cell(("DFLASH",), "target_verify", "eager", "mha")


@pytest.fixture
def _few_cells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A code path that both releases are wrong in, with its metadata and with attention."""
    monkeypatch.setattr(module, "cells", lambda capabilities: [CELL])
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("_few_cells")
@pytest.mark.parametrize("release", ["0.5.16", "0.5.23"])
def test_a_subject_that_aborts_on_one_step_in_ten_changes_nothing_but_the_count_of_its_losses(release: str) -> None:
    source = resolve(release)
    reliable, unreliable = (run(source, PLAN._replace(through=through)) for through in ((), ONE_IN_TEN))

    assert reliable.losses.crashes == 0
    assert unreliable.losses.crashes == unreliable.losses.unreproduced > reliable.losses.answered / 20
    assert unreliable.losses.last == "crash: the subject was killed by SIGABRT"
    assert unreliable.findings == reliable.findings
    assert unreliable.checks == reliable.checks
    assert unreliable.unknown == reliable.unknown
    assert unreliable.exit_status == reliable.exit_status
    assert reliable.findings


def test_a_subject_that_crashes_on_everything_ends_the_run_as_unknown_after_a_bounded_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(losses, "MAX_CRASHES", 10)
    source = Source("./checkout", "directory", Start.USELESS.value, "0.5.18")
    done = run(source, PLAN._replace(groups=("guard",), through=COMMAND))

    assert done.unknown == {
        "subject": "the subject ./checkout was lost 11 times while it answered 0 scenarios: giving up."
    }
    assert done.exit_status == Exit.UNKNOWN
    assert [lost.fault.last_words for lost in done.lost] == ["the last words of a worker"] * 2
    assert done.losses == Losses(crashes=11)
    assert list(tmp_path.rglob("asked.json")) == []


@pytest.mark.slow
def test_a_device_that_is_lost_within_a_frame_is_an_observation_and_costs_no_subject(tmp_path: Path) -> None:
    case = pinned_cases()["attention-runs-error-DFLASH-eager-target_verify-DeviceFault"]
    assert isinstance(case.scenario, MetadataScenario)
    right = pinned_cases()["double-count-of-the-contract"].scenario
    with Supervisor(resolve("0.5.16"), pending=tmp_path) as supervisor:
        before, lost, after = supervisor.observe([right, case.scenario, right])

    assert "507015" in lost.seen[0].error
    assert before == after != Observation()
    assert supervisor.losses == Losses(answered=3)
