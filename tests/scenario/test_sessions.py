"""Sessions as data: what is drawn can be, what matters is drawn, servers cover their options, and rules are named."""

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from harness.models.prompts import prompt
from harness.scenario import Scenario, SessionScenario
from harness.scenario.axes import AXES, EXCLUDED, session_axes
from harness.scenario.case import Case, read_case, write_case
from harness.scenario.covering import covering
from harness.scenario.session import Visit
from harness.scenario.session_machine import SessionMachine
from harness.scenario.session_strategies import ALGORITHMS, OTHER_DRAFTS, TRAINED, Server, servers
from harness.scenario.validity import why_invalid
from tests.ideal import CAPABILITIES, SAME, drawn_sessions

KNOWN = [axis.name for axis in AXES]
#: Of the trained target.
SERVERS = [server for server in servers(CAPABILITIES, KNOWN, 99) if server.target == TRAINED and not server.draft]
DEFAULT = Server("DFLASH", "eager", "mha", ())
SMALL_PAGES = Server("DFLASH", "eager", "mha", (("page_size", 16), ("context_length", 256)))
SESSION = SessionScenario(
    "DFLASH",
    (Visit(5, 20), Visit(130, 6, text=1, own=2, arrives=3, aborted=5, temperature=80)),
    "graph",
    options=(("page_size", 16), ("disable_radix_cache", True), ("swa_full_tokens_ratio", 0.5)),
    environment=(("ASCEND_USE_FIA", "1"),),
    gate_lifted=True,
)


@pytest.mark.parametrize("server", SERVERS[::7], ids=str)
def test_a_drawn_session_can_be_and_is_for_its_server(server: Server) -> None:
    for scenario in drawn_sessions(server):
        assert why_invalid(scenario) == "", scenario
        assert (scenario.algorithm, scenario.executor, scenario.target) == server[:3]
        assert dict(scenario.options) | dict(scenario.environment) == dict(server.row)


@pytest.mark.parametrize("server", [DEFAULT, SMALL_PAGES], ids=str)
def test_what_matters_of_visits_is_drawn(server: Server) -> None:
    reached = {reason for scenario in drawn_sessions(server, 1600) for reason in reasons(scenario, server)}

    assert reached == {
        "alone",
        "several at once",
        "one after the other",
        "aborted",
        "whole pages",
        "a token beyond a page",
        "several pages",
        "one token",
        "a shared page",
        "the same prompt",
        "nothing shared",
        "the longest",
        "sampled",
        "late streams",
    }


def reasons(scenario: SessionScenario, server: Server) -> set[str]:
    """What of a session is worth having been drawn."""
    visits, page = scenario.visits, server.page_size
    shared = [common(prompt(a, i), prompt(b, j)) for (i, a), (j, b) in combinations(enumerate(visits), 2)]
    prompts = [prompt(visit, number) for number, visit in enumerate(visits)]
    arrivals = [visit.arrives for visit in visits]
    found = {
        "alone": len(visits) == 1,
        "several at once": len(set(arrivals)) < len(arrivals),
        "one after the other": len(set(arrivals)) > 1,
        "aborted": any(visit.aborted for visit in visits),
        "whole pages": any(visit.length % page == 0 for visit in visits),
        "a token beyond a page": any(visit.length % page == 1 for visit in visits),
        "several pages": any(visit.length > page for visit in visits),
        "one token": any(visit.new_tokens == 1 for visit in visits),
        "a shared page": any(length >= page for length in shared),
        "the same prompt": any(one == other for one, other in combinations(prompts, 2)),
        "nothing shared": any(length == 0 for length in shared),
        "sampled": any(visit.temperature for visit in visits),
        "late streams": scenario.streams == "late",
        "the longest": any(visit.length == server.longest_prompt for visit in visits),
    }
    return {name for name, holds in found.items() if holds}


def common(one: list[int], other: list[int]) -> int:
    """How many tokens two prompts begin with in common."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_visits_of_one_text_share_all_but_their_own_tokens() -> None:
    one, other = prompt(Visit(140, 1, own=3), 0), prompt(Visit(200, 1, own=10), 1)

    assert common(one, other) == 137
    assert common(prompt(Visit(140, 1, own=0), 0), prompt(Visit(140, 1, own=0), 1)) == 140
    assert common(prompt(Visit(140, 1), 0), prompt(Visit(140, 1, text=1), 0)) < 16  # blanks, and less than any page


def test_the_first_server_of_each_algorithm_and_executor_varies_nothing() -> None:
    first = {(server.algorithm, server.executor): server for server in reversed(SERVERS)}

    assert set(first) == {(algorithm, executor) for algorithm in ALGORITHMS for executor in ("eager", "graph")}
    assert all(server.row == () for server in first.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("executor", ["eager", "graph"])
def test_with_all_rows_every_pair_of_values_has_a_server(algorithm: Any, executor: str) -> None:
    axes = session_axes(algorithm, "mha", KNOWN)
    first = {name: values[0] for name, values in axes.items()}
    rows = [
        first | dict(server.row) for server in SERVERS if (server.algorithm, server.executor) == (algorithm, executor)
    ]

    assert pairs(rows) == pairs(covering(axes, EXCLUDED))


def pairs(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """Every two values that a row has together."""
    return {pair for row in rows for pair in combinations([f"{name}={value!r}" for name, value in row.items()], 2)}


@pytest.mark.parametrize("rows", [1, 3])
def test_no_more_servers_are_started_than_asked_for(rows: int) -> None:
    every = [server for server in servers(CAPABILITIES, KNOWN, rows) if server.target == TRAINED]
    started = [server for server in every if not server.draft]

    assert len(started) == rows * len(ALGORITHMS) * 2
    assert len(every) - len(started) == (rows - 1) * len(OTHER_DRAFTS) * 2


def test_an_algorithm_that_the_release_has_not_gets_no_server_and_no_speculation_always_does() -> None:
    assert {server.algorithm for server in servers(("EAGLE",), KNOWN, 1)} == {"EAGLE", "NONE"}


def test_an_option_that_the_release_has_not_is_not_varied() -> None:
    known = [name for name in KNOWN if name != "page_size"]

    assert not [server for server in servers(CAPABILITIES, known, 99) if "page_size" in dict(server.row)]


def test_a_server_is_named_by_what_it_varies() -> None:
    assert str(DEFAULT) == "session DFLASH eager mha"
    assert str(SMALL_PAGES) == "session DFLASH eager mha page_size=16 context_length=256"


def test_an_option_that_is_left_to_sglang_is_not_named() -> None:
    server = Server("DFLASH", "eager", "mha", (("context_length", None), ("ASCEND_USE_FIA", "1"), ("page_size", 64)))

    assert server.options == (("page_size", 64),)
    assert server.environment == (("ASCEND_USE_FIA", "1"),)


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({"visits": SESSION.visits[:1]}, True),
        ({"fill": 7.0}, True),
        ({"options": ()}, False),
        ({"environment": ()}, False),
        ({"executor": "eager"}, False),
        ({"gate_lifted": False}, False),
        ({"subject": "engine"}, False),
        ({"algorithm": "EAGLE"}, False),
    ],
    ids=str,
)
def test_sessions_that_differ_in_visits_and_fill_alone_share_a_server(changes: dict[str, Any], shared: bool) -> None:
    assert (replace(SESSION, **changes).server == SESSION.server) == shared


@pytest.mark.parametrize("server", [DEFAULT, SMALL_PAGES], ids=str)
def test_a_drawn_session_survives_a_case_file(server: Server, tmp_path: Path) -> None:
    for scenario in (SESSION, *drawn_sessions(server)[:3]):
        write_case(tmp_path / "case.json", Case(1, scenario))

        assert scenario == read_case(tmp_path / "case.json").scenario
        assert scenario == msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)


def visiting(**changes: Any) -> SessionScenario:
    """The session with its second visit changed."""
    return replace(SESSION, visits=(SESSION.visits[0], replace(SESSION.visits[1], **changes)))


@pytest.mark.parametrize(
    "scenario",
    [
        SESSION,
        replace(SESSION, options=()),
        replace(SESSION, algorithm="NONE", gate_lifted=False),
        visiting(length=1, own=1),
        visiting(length=1021),
        visiting(own=0),
        visiting(own=130),
        visiting(aborted=4),
        visiting(aborted=0),
        visiting(length=2, own=0, given=(0, 255)),
    ],
)
def test_what_the_rules_are_tried_on_can_be(scenario: SessionScenario) -> None:
    assert why_invalid(scenario) == ""


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (
            replace(SESSION, algorithm="NGRAM"),
            "there is no draft for NGRAM: the algorithms of sessions are DFLASH, DSPARK, EAGLE, NONE",
        ),
        (
            replace(SESSION, options=(("page_size", 16), ("page_size", 64))),
            "page_size is named twice",
        ),
        (
            replace(SESSION, environment=(("ASCEND_USE_FIA", "1"), ("ASCEND_USE_FIA", "0"))),
            "ASCEND_USE_FIA is named twice",
        ),
        (replace(SESSION, options=(("context_length", 0),)), "context_length=0 is not in 1 to 1048576"),
        (replace(SESSION, options=(("context_length", "256"),)), "context_length=256 is not in 1 to 1048576"),
        (replace(SESSION, fill=float("nan")), "the fill must be finite"),
        (replace(SESSION, fill=float("inf")), "the fill must be finite"),
        (replace(SESSION, algorithm="EAGLE"), "EAGLE has no device gate to lift"),
        (replace(SESSION, algorithm="EAGLE", gate_lifted=False, draft="DFLASH2"), "EAGLE has no draft model DFLASH2"),
        (replace(SESSION, subject="engine", streams="late"), "streams are held back for workers alone"),
        (replace(SESSION, visits=()), "it has 0 visits, and not 1 to 64"),
        (replace(SESSION, visits=(Visit(5, 1),) * 65), "it has 65 visits, and not 1 to 64"),
        (visiting(length=0), "length=0 is not in 1 to 1021: sglang keeps two positions of the context free"),
        (visiting(length=1022), "length=1022 is not in 1 to 1021: sglang keeps two positions of the context free"),
        (
            replace(SESSION, options=(("context_length", 130),)),
            "length=130 is not in 1 to 127: sglang keeps two positions of the context free",
        ),
        (visiting(new_tokens=0), "new_tokens=0 is not in 1 to the context length 1024"),
        (visiting(new_tokens=1025), "new_tokens=1025 is not in 1 to the context length 1024"),
        (visiting(own=-1), "own=-1 is not in 0 to the length 130"),
        (visiting(own=131), "own=131 is not in 0 to the length 130"),
        (visiting(arrives=-1), "arrives=-1 is no turn"),
        (visiting(aborted=3), "it is aborted at turn 3, and arrives at turn 3"),
        (visiting(temperature=-1), "temperature=-1 is below 0"),
        (visiting(given=(1, 2)), "it is given 2 tokens, and not 130 bytes"),
        (visiting(length=2, own=0, given=(1, 256)), "it is given 2 tokens, and not 2 bytes"),
    ],
)
def test_a_broken_rule_is_named(scenario: SessionScenario, sentence: str) -> None:
    assert sentence == why_invalid(scenario)


@cache
def built(server: Server) -> list[SessionScenario]:
    """Sessions that the state machine makes, the same every time."""
    made: list[SessionScenario] = []
    steps = settings(SAME, max_examples=100, stateful_step_count=14, phases=(Phase.generate,))
    run_state_machine_as_test(lambda: SessionMachine(server, made.append), settings=steps)
    return made


@pytest.mark.parametrize("server", [DEFAULT, SMALL_PAGES], ids=str)
def test_a_session_that_the_machine_makes_can_be(server: Server) -> None:
    for scenario in built(server):
        assert why_invalid(scenario) == "", scenario
        assert scenario.options == server.options


@pytest.mark.parametrize("server", [DEFAULT, SMALL_PAGES], ids=str)
def test_what_the_rules_of_the_machine_are_for_happens(server: Server) -> None:
    reached = {reason for scenario in built(server) for reason in reasons(scenario, server)}
    batches = {len(scenario.visits) for scenario in built(server)}

    assert batches == set(range(1, 7))
    assert reached >= {
        "several at once",
        "one after the other",
        "aborted",
        "whole pages",
        "a shared page",
        "the same prompt",
        "nothing shared",
        "the longest",
    }


def test_a_fault_is_shrunk_to_the_steps_that_it_takes() -> None:
    """The fault is of two requests, one of which is aborted."""
    found: list[SessionScenario] = []

    def judge(scenario: SessionScenario) -> None:
        if len(scenario.visits) > 1 and any(visit.aborted for visit in scenario.visits):
            found.append(scenario)
            raise AssertionError("wrong")

    steps = settings(SAME, max_examples=50, stateful_step_count=8)
    with pytest.raises(AssertionError, match="wrong"):
        run_state_machine_as_test(lambda: SessionMachine(DEFAULT, judge), settings=steps)

    assert len(found[-1].visits) == 2
    assert sum(visit.new_tokens for visit in found[-1].visits) == 2
