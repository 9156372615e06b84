"""Sessions that whole engines play: right in 0.5.23, wrong in 0.5.18, and as the workers alone play them."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import checks_of
from harness.scenario.metadata import Executor
from harness.scenario.session import SessionScenario, Visit
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.test_template import ends

pytestmark = pytest.mark.slow

#: Requests that share a prefix, queue, and are aborted.
VISITS = (
    Visit(130, 24),
    Visit(100, 24, own=2, arrives=1),
    Visit(200, 20, text=1, arrives=2, aborted=5),
    Visit(250, 24, text=2, arrives=9),
)
CHECKS = checks_of(("sessions",))


def session(executor: Executor = "eager") -> SessionScenario:
    return SessionScenario("DFLASH", VISITS, executor, subject="engine")


@pytest.fixture
def supervisor(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervisor]:
    """A subject of the release that the test names."""
    with Supervisor(resolve(request.param), pending=tmp_path) as started:
        yield started


def found(supervisor: Supervisor, scenario: SessionScenario) -> dict[str, str]:
    """The message of each check that has a finding."""
    tally = Tally([check.id for check in CHECKS])
    findings = Trial(supervisor.observe, CHECKS, tally).judge(scenario)
    assert not tally.reasons
    return {finding.check: finding.message for finding in findings}


@pytest.mark.parametrize("supervisor", ["0.5.23"], indirect=True)
def test_a_right_engine_plays_one_session_after_the_other_as_its_workers_do_alone(supervisor: Supervisor) -> None:
    assert found(supervisor, session()) == {}
    engine, again, alone = (
        supervisor.observe([replace(session(), subject=subject)])[0].session
        for subject in ("engine", "engine", "worker")
    )
    assert engine is not None and alone is not None
    assert engine == again
    assert engine.forwards == alone.forwards
    assert [got.tokens for got in engine.answers] == [got.tokens for got in alone.answers]
    assert [replace(got, finished="") for got in engine.answers] == [replace(got, finished="") for got in alone.answers]

    assert supervisor.process is not None
    everyone = [process.pid for process in psutil.Process(supervisor.process.pid).children(recursive=True)]
    supervisor.close()

    assert len(everyone) >= 4  # two workers, and a scheduler and a detokenizer of the engine
    assert all(ends(process) for process in everyone)


@pytest.mark.parametrize("supervisor", ["0.5.18"], indirect=True)
def test_what_is_wrong_in_0_5_18_an_engine_shows_as_its_workers_do(supervisor: Supervisor) -> None:
    assert {"session-kv-lengths", "session-kv-access", "session-lossless"} <= found(supervisor, session()).keys()

    ended = found(supervisor, session("graph"))

    assert ended.keys() == {"session-runs"}
    assert "AttributeError: 'NPUGraphRunner' object has no attribute 'raw_num_token'" in ended["session-runs"]
