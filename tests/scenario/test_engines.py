"""Which servers the engine subject has, and the sessions that are drawn for them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.campaign.profile import PROFILES
from harness.scenario.axes import AXES
from harness.scenario.session_strategies import ENGINE_AXES, engines, servers, sessions

EVERY = {axis.name for axis in AXES}


def test_the_first_engine_of_each_executor_varies_nothing() -> None:
    first = list(engines(("DFLASH",), EVERY, 1))

    assert [(server.algorithm, server.executor, server.row, server.subject) for server in first] == [
        ("DFLASH", "eager", (), "engine"),
        ("DFLASH", "graph", (), "engine"),
    ]


def test_all_engines_together_have_every_value_that_engines_vary() -> None:
    varied = {name: {dict(server.row).get(name) for server in engines(("DFLASH",), EVERY, 99)} for name in ENGINE_AXES}

    assert varied == {
        "disable_overlap_schedule": {None, True},
        "disable_radix_cache": {None, True},
        "chunked_prefill_size": {None, 128, 256},
    }


def test_a_release_without_dflash_has_no_engines() -> None:
    assert list(engines(("EAGLE",), EVERY, 99)) == []


def test_only_thorough_profiles_start_engines() -> None:
    assert {name: profile.engines for name, profile in PROFILES.items()} == {"dev": 0, "pr": 1, "nightly": 99}


@given(st.data())
@settings(max_examples=10)
def test_sessions_are_answered_by_who_their_server_is(data: st.DataObject) -> None:
    (worker, *_), (engine, *_) = servers(("DFLASH",), EVERY, 1), engines(("DFLASH",), EVERY, 1)

    assert data.draw(sessions(worker)).subject == "worker"
    assert data.draw(sessions(engine)).subject == "engine"
    assert str(engine) == "session engine DFLASH eager mha"
