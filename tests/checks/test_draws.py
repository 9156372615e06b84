"""Sampled verifies: greedy tokens instead of drawn ones, too many, too few and ruled-out ones are found."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from harness.checks.finding import NOT_RUN, PASSED, Verdict
from harness.checks.registry import CHECKS
from harness.scenario import VerifyRequest, VerifyScenario
from harness.scenario.observation import Emitted, Observation
from harness.scenario.verify_strategies import VerifyCell, verify_cells
from tests.checks.test_accept import raises
from tests.ideal import CAPABILITIES, Plant, Planted, drawn_verifies, judge

SAMPLED = CHECKS["accept-sampled"]

#: At temperature 1 every token is as likely as any other, but for token 3, which a filter rules out.
LOGITS = (5, 5, 5, -60)
REQUEST = VerifyRequest((0, 1), (LOGITS, LOGITS), temperature=1.0, top_p=0.999)
VERIFY = VerifyScenario("EAGLE", (REQUEST,), draws=180)
#: Token 1 is the most likely one: e / (e + 1 + 1 + 1) of 47.5 %.
LIKELY = replace(VERIFY, requests=(VerifyRequest((0, 1), ((0, 1, 0, 0), (0, 1, 0, 0)), temperature=1.0),))


def emits(counts: Mapping[tuple[int, ...], int], bonus: int | None = None) -> Plant:
    """The fault of emitting tokens so many times."""
    seen = [Emitted(len(one), one, one[-1] if bonus is None else bonus, count) for one, count in counts.items()]
    return lambda observed: replace(observed, accepted=(tuple(seen), *observed.accepted[1:]))


#: What is right: token 0 or 2 in a third of the draws each, or token 1, which is drafted, and any after it.
RIGHT = {(0,): 60, (2,): 60, (1, 0): 20, (1, 1): 20, (1, 2): 20}

PLANTED = [
    Planted(
        "greedy tokens", SAMPLED, LIKELY, emits({(1, 1): 180}), "always-the-greedy",
        "tokens[0]=[1, 1] in 180 of 180 draws, but should be in 22.597% of them",
    ),
    Planted(
        "the draft accepted always", SAMPLED, VERIFY, emits({(1, 0): 60, (1, 1): 60, (1, 2): 60}), "too-many",
        "accept_lens[0] is 2 or more in 180 of 180 draws, but should be in 33.333% of them",
    ),
    Planted(
        "the draft accepted never", SAMPLED, VERIFY, emits({(0,): 90, (2,): 90}), "too-few",
        "accept_lens[0] is 2 or more in 0 of 180 draws, but should be in 33.333% of them",
    ),
    Planted(
        "one bonus alone", SAMPLED, VERIFY, emits({(0,): 60, (2,): 60, (1, 1): 60}), "other-distribution",
        "tokens[0]=[1, 1] in 60 of 180 draws, but should be in 11.111% of them",
    ),
    Planted(
        "a token that top_p rules out", SAMPLED, VERIFY, emits({**RIGHT, (3,): 1}), "ruled-out",
        "tokens[0]=[3] in 1 of 180 draws, but should be in none",
    ),
    Planted(
        "a token that nobody drafted accepted", SAMPLED, VERIFY, emits({**RIGHT, (0, 1): 1}), "too-many",
        "tokens[0]=[0, 1] in 1 of 180 draws, but should be in none",
    ),
    Planted(
        "no token after an accepted one", SAMPLED, VERIFY, emits({**RIGHT, (1,): 1}), "too-few",
        "tokens[0]=[1] in 1 of 180 draws, but should be in none",
    ),
    Planted(
        "another bonus handed on", SAMPLED, VERIFY, emits({(0,): 180}, bonus=1), "wrong-bonus",
        "bonus[0]=1, but should be 0",
    ),
    Planted(
        "a verify that raises", SAMPLED, VERIFY, raises, "TypeError",
        "the verify raises TypeError: 'NoneType' object is not callable",
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_what_is_emitted_as_often_as_it_is_likely_passes() -> None:
    assert judge(SAMPLED, VERIFY, emits(RIGHT)) == PASSED


@pytest.mark.parametrize("cell", [cell for cell in verify_cells(CAPABILITIES) if cell.sampled], ids=str)
def test_an_ideal_subject_passes_on_drawn_verifies(cell: VerifyCell) -> None:
    verdicts = {judge(SAMPLED, scenario).verdict for scenario in drawn_verifies(cell)}

    assert Verdict.PASS in verdicts
    assert verdicts <= {Verdict.PASS, Verdict.NOT_RUN}


def test_a_cut_that_rounding_decides_is_not_judged() -> None:
    cut = replace(VERIFY, requests=(replace(REQUEST, logits=((5, 5, -60, -60), LOGITS), top_p=0.5),))

    assert judge(SAMPLED, cut) == NOT_RUN


def test_a_greedy_request_beside_a_sampled_one_is_judged_by_the_greedy_rule_alone() -> None:
    greedy = VerifyRequest((0, 1), ((0, 9, 0, 0), (0, 0, 9, 0)))
    both = replace(VERIFY, requests=(REQUEST, greedy))

    assert judge(SAMPLED, both) == PASSED
    assert judge(CHECKS["accept-greedy"], both) == PASSED


@pytest.mark.parametrize("observed", [Observation(), Observation(accepted=((),))], ids=["none", "empty"])
def test_requests_without_an_answer_are_unknown(observed: Observation) -> None:
    assert judge(SAMPLED, VERIFY, lambda _: observed).verdict is Verdict.UNKNOWN


def test_a_finding_says_what_was_asked_for() -> None:
    (found,) = judge(SAMPLED, VERIFY, emits({(0,): 90, (2,): 90})).findings

    assert found.message.endswith("[ascend, EAGLE, sampled, chain, block=2, temperature=1.0, top_p=0.999]")
    assert found.fingerprint == "accept-sampled:accept_lens:EAGLE:ascend:chain:too-few"
