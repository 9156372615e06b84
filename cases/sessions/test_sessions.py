"""Whole sessions on the release's own scheduler and workers: every law holds, turn by turn."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test

from harness.campaign.profile import PROFILES
from harness.scenario import SessionScenario
from harness.scenario.axes import AXES
from harness.scenario.session_machine import SessionMachine
from harness.scenario.session_strategies import ALGORITHMS, Server, servers, sessions

#: Steps of the state machine that make one session.
STEPS = 12


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One case for each server; what is asked of one comes together, so that it is started once.

    A nightly run has all servers, and any other those that vary no option: `harness check` starts more of them.
    """
    profile = PROFILES[metafunc.config.getoption("--profile")]
    rows = profile.servers if profile.name == "nightly" else 1
    every = list(servers(ALGORITHMS, [axis.name for axis in AXES], rows))
    metafunc.parametrize("server", every, ids=str, scope="module")


@pytest.fixture
def tries(request: pytest.FixtureRequest) -> settings:
    """Of the sessions that the profile has for a server, half are drawn and half are made step by step."""
    profile = PROFILES[request.config.getoption("--profile")]
    return settings(max_examples=ceil(profile.sessions / 2), stateful_step_count=STEPS)


def test_drawn_sessions_are_right(server: Server, tries: settings, bench) -> None:
    available = bench.available_server(server)

    @settings(tries)
    @given(sessions(available))
    def judge(scenario: SessionScenario) -> None:
        bench.require_right(scenario, groups=("sessions",))

    judge()


def test_sessions_made_step_by_step_are_right(server: Server, tries: settings, bench) -> None:
    available = bench.available_server(server)

    def judge(scenario: SessionScenario) -> None:
        bench.require_right(scenario, groups=("sessions",))

    run_state_machine_as_test(lambda: SessionMachine(available, judge), settings=tries)
