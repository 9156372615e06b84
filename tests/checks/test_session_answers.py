"""The answers of a session: other tokens than the target's own, missing ones and dishonest counts are found."""

from typing import Any

import pytest
from msgspec.structs import replace

from harness.checks import session_answers
from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, PASSED, Verdict
from harness.checks.noise import bound
from harness.checks.registry import CHECKS
from harness.reference.session import answer
from harness.reference.transformer import Greedy
from harness.scenario.observation import Answer, Observation
from harness.scenario.session import Visit
from tests.checks.test_session_lengths import PLAIN
from tests.checks.test_session_server import NEVER_STARTED, SESSION, Plant, reported
from tests.ideal import Planted, judge

LOSSLESS = CHECKS["session-lossless"]
COMPLETE = CHECKS["session-complete"]
ACCEPTANCE = CHECKS["session-acceptance"]

RIGHT = answer(SESSION, 1)
#: Where the target is surest.
PLACE = RIGHT.gaps.index(max(RIGHT.gaps))
OTHER = (RIGHT.tokens[PLACE] + 1) % 490
#: The context has room for six tokens more.
AT_THE_END = replace(SESSION, visits=(Visit(248, 20),), options=(("context_length", 256),))
ABORTED = replace(SESSION, visits=(Visit(5, 20, aborted=3), SESSION.visits[1]))


def answers(number: int, **changes: Any) -> Plant:
    """The fault of giving the visit with this number another answer."""

    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        given = list(observed.session.answers)
        given[number] = replace(given[number], **changes)
        return Observation(session=replace(observed.session, answers=tuple(given)))

    return plant


def counts(number: int, *accepted: int) -> Plant:
    """The fault of counting accepted tokens so, and the verifies with them."""
    return answers(number, accepted=accepted, verifies=sum(accepted))


PLANTED = [
    Planted(
        "a token that the target would not generate",
        LOSSLESS,
        SESSION,
        answers(1, tokens=(*RIGHT.tokens[:PLACE], OTHER, *RIGHT.tokens[PLACE + 1 :])),
        "differ",
        f"token {PLACE} of visit 1 is {OTHER}, but the target alone generates {RIGHT.tokens[PLACE]} "
        f"(its logit is {RIGHT.gaps[PLACE]:.3g} above the next)",
    ),
    Planted(
        "a request that is never finished",
        COMPLETE,
        SESSION,
        answers(1, tokens=RIGHT.tokens[:4], finished=""),
        "unfinished",
        "visit 1 is never finished: it has 4 of 6 tokens",
    ),
    Planted(
        "an answer that ends before its context does",
        COMPLETE,
        AT_THE_END,
        answers(0, tokens=answer(AT_THE_END, 0).tokens[:5]),
        "wrong-count",
        "visit 0 gets 5 tokens, but should get 6 (FINISH_LENGTH)",
    ),
    Planted(
        "an answer that is cut short",
        COMPLETE,
        SESSION,
        answers(1, tokens=RIGHT.tokens[:5]),
        "wrong-count",
        "visit 1 gets 5 tokens, but should get 6 (FINISH_LENGTH)",
    ),
    Planted(
        "more accepted than drafted",
        ACCEPTANCE,
        SESSION,
        counts(1, 0, 0, 0, 0, 1),
        "rate-above-one",
        "visit 1 accepts 4 of 3 draft tokens",
    ),
    Planted(
        "a verify that is not counted",
        ACCEPTANCE,
        SESSION,
        answers(1, verifies=7),
        "steps",
        "visit 1 counts 2 steps by accepted tokens, and 7 verifies",
    ),
    Planted(
        "tokens that no verify made",
        ACCEPTANCE,
        SESSION,
        counts(1, 0, 1, 0, 0),
        "tokens",
        "visit 1 counts 2 tokens of its verifies, and they made 8",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize(("gap", "verdict"), [(1.9, Verdict.PASS), (2.1, Verdict.FAIL)])
def test_of_two_logits_within_the_noise_either_may_win(
    gap: float, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = gap * bound(session_answers.FLOOR)
    monkeypatch.setattr(session_answers, "answer", lambda scenario, visit: Greedy((1, 2, 3), (5.0, near, 5.0)))

    one = replace(SESSION, visits=SESSION.visits[:1])

    assert judge(LOSSLESS, one, answers(0, tokens=(1, 9, 9))).verdict is verdict


def test_what_comes_before_a_near_tie_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_answers, "answer", lambda scenario, visit: Greedy((1, 2, 3), (5.0, 0.0, 5.0)))

    assert judge(LOSSLESS, SESSION, answers(0, tokens=(8, 9, 9))).verdict is Verdict.FAIL


def test_a_sampled_answer_is_not_held_to_the_greedy_one() -> None:
    sampled = replace(SESSION, visits=(replace(SESSION.visits[0], temperature=80),))

    assert judge(LOSSLESS, sampled, answers(0, tokens=(OTHER,) * 20)) == NOT_RUN


def test_what_an_aborted_request_got_is_the_beginning_of_its_answer() -> None:
    wrong = (answer(ABORTED, 0).tokens[0] + 1) % 490

    assert judge(LOSSLESS, ABORTED) == PASSED
    assert judge(LOSSLESS, ABORTED, answers(0, tokens=(wrong,))).verdict is Verdict.FAIL


def test_an_aborted_request_gets_as_many_tokens_as_there_were() -> None:
    assert judge(COMPLETE, ABORTED) == PASSED
    assert judge(COMPLETE, ABORTED, answers(0, tokens=(), finished="")) == PASSED


def test_an_answer_ends_where_the_context_does() -> None:
    assert judge(COMPLETE, AT_THE_END) == PASSED


def test_who_is_running_when_a_server_ends_is_told_by_its_end() -> None:
    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        return Observation(session=replace(observed.session, error="RuntimeError: no", answers=(Answer(), Answer())))

    assert judge(COMPLETE, SESSION, plant) == NOT_RUN


def test_a_retracted_visit_is_not_held_to_its_counts_since_its_last_verify_may_be_lost() -> None:
    fewer = {"accepted": (0, 1, 0, 0), "verifies": 1}

    assert judge(ACCEPTANCE, SESSION, answers(1, **fewer)).verdict is Verdict.FAIL
    assert judge(ACCEPTANCE, SESSION, answers(1, **fewer, retractions=1)) == PASSED


def test_without_speculation_nothing_is_accepted() -> None:
    assert judge(ACCEPTANCE, PLAIN) == NOT_RUN


@pytest.mark.parametrize("check", [LOSSLESS, COMPLETE, ACCEPTANCE], ids=lambda check: check.id)
def test_a_server_that_never_started_has_no_answers(check: Check) -> None:
    assert judge(check, SESSION, reported(NEVER_STARTED)) == NOT_RUN
