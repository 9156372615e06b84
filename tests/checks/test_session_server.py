"""A session as a whole: a server that does not start or does not stand, wrong accesses and wrong books are found."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, Verdict, unknown
from harness.checks.registry import CHECKS
from harness.scenario.observation import BadAccess, Changed, Forward, Observation, SessionSeen
from harness.scenario.session import SessionScenario, Visit
from tests.ideal import Planted, judge

RUNS = CHECKS["session-runs"]
ACCESS = CHECKS["session-kv-access"]
ACCOUNTS = CHECKS["session-accounts"]
INPUTS = CHECKS["session-inputs"]

#: The second request comes when the first one has answered most of what it was asked.
SESSION = SessionScenario("DFLASH", (Visit(5, 20), Visit(130, 6, text=1, arrives=3)))
EAGLE = replace(SESSION, algorithm="EAGLE")

NEVER_STARTED = SessionSeen(0, error="ValueError: this sglang refuses the device npu")

Plant = Callable[[Observation], Observation]


def seen(**changes: Any) -> Plant:
    """The fault of reporting `changes` of the session as a whole."""

    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        return Observation(session=replace(observed.session, **changes))

    return plant


def reported(session: SessionSeen) -> Plant:
    """The fault of reporting another session."""
    return lambda observed: Observation(session=session)


def of_forward(mode: str, changed: Callable[[Forward], Forward], visits: int = 1) -> Plant:
    """The fault of reporting the first forward of this mode, with so many visits, as `changed` has it."""

    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        forwards = list(observed.session.forwards)
        place = next(number for number, one in enumerate(forwards) if one.mode == mode and len(one.visits) == visits)
        forwards[place] = changed(forwards[place])
        return Observation(session=replace(observed.session, forwards=tuple(forwards)))

    return plant


def accessed(place: str, kind: str, consequence: str = "silent wrong attention") -> Plant:
    """The fault of an access, of the forward at `place`, that the sanitizer objects to."""
    return seen(accesses=(BadAccess(kind, f"{place}, turn 3: attend does wrong", consequence),))


PLANTED = [
    Planted(
        "a device that is refused",
        RUNS,
        SESSION,
        reported(NEVER_STARTED),
        "ValueError-this-sglang-refuses-the-device-npu",
        "the server does not start: ValueError: this sglang refuses the device npu",
    ),
    Planted(
        "a verify that raises",
        RUNS,
        SESSION,
        seen(turns=4, error="AttributeError: 'NPUGraphRunner' object has no attribute 'raw_num_token'"),
        "AttributeError-NPUGraphRunner-object-has-no-attribute-raw_num_token",
        "the server ends at turn 4: AttributeError: 'NPUGraphRunner' object has no attribute 'raw_num_token'",
    ),
    Planted(
        "a device that is lost",
        RUNS,
        SESSION,
        seen(turns=7, error="RuntimeError: aicore exception, error 507015 at 0x7f00"),
        "507015",
        "the server ends at turn 7: RuntimeError: aicore exception, error 507015 at 0x7f00",
    ),
    Planted(
        "a slot that nobody has written is read",
        ACCESS,
        SESSION,
        accessed("target_verify", "never-written"),
        "never-written",
        "target_verify, turn 3: attend does wrong",
    ),
    Planted(
        "a page that has two homes",
        ACCOUNTS,
        SESSION,
        seen(accounts=("turn 3: page 2 is free, and in the prefix tree", "turn 4: page 3 is free twice (1 page)")),
        "turn-page-is-free-and-in-the-prefix-tree",
        "turn 3: page 2 is free, and in the prefix tree",
    ),
    Planted(
        "a server that comes to a stand",
        ACCOUNTS,
        SESSION,
        seen(accounts=("after 90 turns the server is not idle: it has come to a stand",)),
        "after-turns-the-server-is-not-idle-it-has-come-to-a-stand",
        "after 90 turns the server is not idle: it has come to a stand",
    ),
    Planted(
        "lengths that the forward writes to",
        INPUTS,
        SESSION,
        seen(rewritten=(Changed("target_verify seq_lens_cpu", "int32", (5, 130), (5, 138)),)),
        "int32",
        "target_verify seq_lens_cpu[1]=138 after the forward, but was published as 130",
    ),
    Planted(
        "a result that the next step writes to",
        INPUTS,
        SESSION,
        seen(rewritten=(Changed("result accept_lens", "int64", (2, 1), (2, 3)),)),
        "int64",
        "result accept_lens[1]=3 when the scheduler reads it, but was published as 1",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize(("place", "field"), [("draft_block", "draft_block"), ("between forwards", "between-forwards")])
def test_a_wrong_access_is_told_by_the_forward_that_made_it(place: str, field: str) -> None:
    (found,) = judge(ACCESS, SESSION, accessed(place, "foreign")).findings

    assert found.fingerprint == f"session-kv-access:{field}:DFLASH:eager:session:foreign"


def test_what_a_wrong_access_leads_to_is_told() -> None:
    (found,) = judge(ACCESS, SESSION, accessed("decode", "table-too-narrow", "error 507015")).findings

    assert found.meaning == "error 507015"


@pytest.mark.parametrize("check", [ACCESS, ACCOUNTS, INPUTS], ids=lambda check: check.id)
def test_a_server_that_never_started_is_only_told_by_its_start(check: Check) -> None:
    assert judge(check, SESSION, reported(NEVER_STARTED)) == NOT_RUN


def test_the_books_are_not_judged_with_late_streams() -> None:
    assert judge(ACCOUNTS, replace(SESSION, streams="late")) == NOT_RUN


@pytest.mark.parametrize(
    ("changed", "server"),
    [
        ({}, "eager, DFLASH, mha"),
        ({"executor": "graph"}, "graph, DFLASH, mha"),
        ({"draft": "DFLASH2"}, "eager, DFLASH2, mha"),
        ({"streams": "late"}, "eager, DFLASH, mha, late streams"),
        ({"gate_lifted": True}, "eager, DFLASH, mha, device gate lifted"),
        ({"subject": "engine"}, "eager, DFLASH, mha, engine"),
        (
            {"options": (("page_size", 16),), "environment": (("ASCEND_USE_FIA", "1"),)},
            "eager, DFLASH, mha, page_size=16, ASCEND_USE_FIA=1",
        ),
    ],
)
def test_a_server_is_told_by_what_is_not_the_default(changed: dict[str, Any], server: str) -> None:
    (found,) = judge(RUNS, replace(SESSION, **changed), reported(NEVER_STARTED)).findings

    assert found.message.endswith(f" [{server}, 2 requests]")


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({"options": (("page_size", 16),)}, "507015"),
        ({"target": "swa"}, "507015:swa"),
        ({"gate_lifted": True}, "507015:gate-lifted"),
        ({"environment": (("SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS", "0"),)}, "507015:absent-host"),
        ({"environment": (("SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS", "1"),)}, "507015"),
        ({"options": (("speculative_draft_window_size", 16),)}, "507015:draft-window"),
        ({"options": (("enable_mixed_chunk", True),)}, "507015:mixed"),
        ({"options": (("disable_hybrid_swa_memory", True),)}, "507015:full-pool"),
    ],
)
def test_a_fingerprint_has_what_changes_how_a_worker_publishes_and_no_other_option(
    changed: dict[str, Any], end: str
) -> None:
    ended = Observation(session=SessionSeen(7, error="RuntimeError: 507015"))
    (found,) = RUNS.outcome(replace(SESSION, **changed), [ended]).findings

    assert found.fingerprint == f"session-runs:end:DFLASH:eager:session:{end}"


def test_errors_that_differ_in_numbers_have_one_fingerprint() -> None:
    found = {
        judge(RUNS, SESSION, seen(error=f"RuntimeError: {number} tokens")).findings[0].fingerprint
        for number in (12, 130)
    }

    assert found == {"session-runs:end:DFLASH:eager:session:RuntimeError-tokens"}


def test_algorithms_with_the_same_worker_share_a_fingerprint() -> None:
    (found,) = judge(RUNS, replace(SESSION, algorithm="EAGLE3"), reported(NEVER_STARTED)).findings

    assert found.fingerprint.startswith("session-runs:start:EAGLE:eager:session:")


@pytest.mark.parametrize(
    "check", [check for check in CHECKS.values() if check.group == "sessions"], ids=lambda check: check.id
)
def test_a_session_that_was_not_reported_is_unknown(check: Check) -> None:
    outcome = judge(check, SESSION, lambda observed: Observation())

    assert outcome == unknown("the subject reported no session")
    assert outcome.verdict is Verdict.UNKNOWN
