"""The accept rule: too many, too few and wrong tokens are found, whoever else in the batch is right."""

import pytest
from msgspec.structs import replace

from harness.checks.finding import PASSED, Verdict
from harness.checks.registry import CHECKS
from harness.scenario import GateScenario, VerifyRequest, VerifyScenario
from harness.scenario.observation import Emitted, Observation, Seen
from harness.scenario.verify_strategies import VerifyCell, verify_cells
from tests.ideal import CAPABILITIES, CONTRACT_EXAMPLE, Plant, Planted, drawn_verifies, judge

GREEDY = CHECKS["accept-greedy"]

#: All of the first are accepted and one of the second; the bonus of both is token 3.
AGREES = VerifyRequest((0, 1, 2), ((0, 9, 0, 0), (0, 0, 9, 0), (0, 0, 0, 9)))
DIFFERS = VerifyRequest((0, 1, 2), ((0, 9, 0, 0), (0, 0, 0, 9), (9, 0, 0, 0)))
VERIFY = VerifyScenario("DFLASH", (AGREES, DIFFERS))
#: After token 1 the target ties between the drafted token and token 3.
TIED = VerifyScenario("DFLASH", (replace(AGREES, logits=((0, 9, 0, 0), (0, 0, 9, 9), (0, 0, 0, 9))),))


def emits(*tokens: int, request: int = 1, bonus: int | None = None, length: int | None = None) -> Plant:
    """The fault of emitting `tokens` for one request."""

    def plant(observed: Observation) -> Observation:
        emitted = Emitted(length or len(tokens), tokens, tokens[-1] if bonus is None else bonus)
        seen = (*observed.accepted[:request], (emitted,), *observed.accepted[request + 1 :])
        return replace(observed, accepted=seen)

    return plant


def raises(observed: Observation) -> Observation:
    """The fault of a verify that raises."""
    return Observation((Seen(error="TypeError: 'NoneType' object is not callable"),))


PLANTED = [
    Planted("a rejected token", GREEDY, VERIFY, emits(1, 2, 0), "too-many", "accept_lens[1]=3, but should be 2"),
    Planted("nothing accepted", GREEDY, VERIFY, emits(1), "too-few", "accept_lens[1]=1, but should be 2"),
    Planted(
        "the first request's", GREEDY, VERIFY, emits(1, 3, request=0), "too-few", "accept_lens[0]=2, but should be 3"
    ),
    Planted(
        "the bonus of another place", GREEDY, VERIFY, emits(1, 0), "wrong-token",
        "tokens[1]=[1, 0], but should be [1, 3]",
    ),
    Planted(
        "another bonus handed on", GREEDY, VERIFY, emits(1, 3, bonus=2), "wrong-bonus", "bonus[1]=2, but should be 3"
    ),
    Planted(
        "a tie broken in two ways", GREEDY, TIED, emits(1, 2, request=0), "wrong-token",
        "tokens[0]=[1, 2], but should be [1, 3]",
    ),
    Planted(
        "no way to break a tie", GREEDY, TIED, emits(1, request=0), "too-few", "accept_lens[0]=1, but should be 2 or 3"
    ),
    Planted(
        "a verify that raises", GREEDY, VERIFY, raises, "TypeError",
        "the verify raises TypeError: 'NoneType' object is not callable",
    ),
]  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize("tokens", [(1, 2, 3), (1, 3)])
def test_a_tie_may_be_broken_either_way(tokens: tuple[int, ...]) -> None:
    assert judge(GREEDY, TIED, emits(*tokens, request=0)) == PASSED


@pytest.mark.parametrize("cell", verify_cells(CAPABILITIES), ids=str)
def test_an_ideal_subject_passes_on_drawn_verifies(cell: VerifyCell) -> None:
    for scenario in drawn_verifies(cell):
        if GREEDY.applies(scenario):
            assert judge(GREEDY, scenario) == PASSED


@pytest.mark.parametrize("observed", [Observation(), Observation(accepted=((), ()))], ids=["none", "empty"])
def test_requests_without_an_answer_are_unknown(observed: Observation) -> None:
    outcome = judge(GREEDY, VERIFY, lambda _: observed)

    assert outcome.verdict is Verdict.UNKNOWN
    assert "no emitted tokens for some of 2 requests" in outcome.reason


def test_a_finding_says_where_and_what_a_user_would_see() -> None:
    (found,) = judge(GREEDY, VERIFY, emits(1, 2, 0)).findings

    assert found.message.endswith("[ascend, DFLASH, greedy, chain, block=3]")
    assert found.fingerprint == "accept-greedy:accept_lens:DFLASH:ascend:chain:too-many"
    assert "the target did not choose" in found.meaning


def test_only_a_verify_is_judged() -> None:
    assert not GREEDY.applies(GateScenario("npu"))
    assert not GREEDY.applies(CONTRACT_EXAMPLE)
