"""The lengths of a session: what is published or told wrongly, or moves on wrongly, is found forward by forward."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, PASSED, Verdict
from harness.checks.registry import CHECKS
from harness.scenario.observation import Forward, Observation
from tests.checks.test_session_server import EAGLE, NEVER_STARTED, SESSION, Plant, of_forward, reported
from tests.ideal import Planted, judge
from tests.ideal_session import BLOCK

TOLD = CHECKS["session-kv-lengths"]
PUBLISHED = CHECKS["session-published"]
PROGRESS = CHECKS["session-progress"]

EAGLE_GRAPH = replace(EAGLE, executor="graph")
PLAIN = replace(SESSION, algorithm="NONE")


def more(lengths: Sequence[int] | None, by: int) -> tuple[int, ...]:
    """`lengths` with the last one wrong."""
    assert lengths is not None
    return (*lengths[:-1], lengths[-1] + by)


def told(mode: str, by: int, visits: int = 1, step: int = 0) -> Plant:
    """The fault of telling attention a wrong length of the last visit, in one step of the forward."""

    def changed(forward: Forward) -> Forward:
        reads = list(forward.reads)
        reads[step] = more(reads[step], by)
        return replace(forward, reads=tuple(reads))

    return of_forward(mode, changed, visits)


def publishes(mode: str, by: int, visits: int = 1) -> Plant:
    """The fault of publishing a wrong host length of the last visit."""
    return of_forward(mode, lambda forward: replace(forward, host=more(forward.host, by)), visits)


def drifts(by: int) -> Plant:
    """The fault of committing `by` more tokens of the first visit than were counted, from the second verify on."""

    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        forwards = list(observed.session.forwards)
        verifies = [number for number, one in enumerate(forwards) if one.mode == "target_verify" and 0 in one.visits]
        for number in verifies[1:]:
            row = forwards[number].visits.index(0)
            device = list(forwards[number].device)
            device[row] += by
            forwards[number] = replace(forwards[number], device=tuple(device))
        return Observation(session=replace(observed.session, forwards=tuple(forwards)))

    return plant


PLANTED = [
    Planted(
        "the block added twice",
        TOLD,
        SESSION,
        told("target_verify", BLOCK),
        "block-added-again",
        "kv_lengths[0]=13, but should be 9",
    ),
    Planted(
        "the block missing in the draft",
        TOLD,
        SESSION,
        told("draft_block", -BLOCK),
        "block-missing",
        "kv_lengths[0]=5, but should be 9",
    ),
    Planted(
        "an extend that sees too much",
        TOLD,
        SESSION,
        told("extend", 1),
        "too-long",
        "kv_lengths[0]=6, but should be 5",
    ),
    Planted(
        "a decode that does not see its own token",
        TOLD,
        PLAIN,
        told("decode", -1),
        "too-short",
        "kv_lengths[0]=5, but should be 6",
    ),
    Planted(
        "a draft step that counts from one",
        TOLD,
        EAGLE,
        told("draft_decode", 1),
        "too-long",
        "kv_lengths[0]=7, but should be 6",
    ),
    Planted(
        "a captured draft step with the length of the step before",
        TOLD,
        EAGLE_GRAPH,
        told("draft_decode", -1, step=1),
        "too-short",
        "kv_lengths[0]=6, but should be 7",
    ),
    Planted(
        "host lengths without the block",
        PUBLISHED,
        SESSION,
        publishes("target_verify", -BLOCK),
        "block-missing",
        "seq_lens_cpu[0]=5, but should be 9",
    ),
    Planted(
        "host lengths with a block too many",
        PUBLISHED,
        EAGLE,
        publishes("target_verify", BLOCK),
        "block-added-again",
        "seq_lens_cpu[0]=9, but should be 5",
    ),
    Planted(
        "host lengths that are a bound",
        PUBLISHED,
        PLAIN,
        publishes("decode", 122),
        "too-long",
        "seq_lens_cpu[0]=128, but should be 6",
    ),
    Planted(
        "a verify that goes back",
        PROGRESS,
        SESSION,
        drifts(-4),
        "out-of-range",
        "the committed prefix of visit 0 moves by -2, but should move by 1 to 4",
    ),
    Planted(
        "a verify that commits more than is counted",
        PROGRESS,
        SESSION,
        drifts(1),
        "miscounted",
        "the committed prefix of visit 0 accepts 2 draft tokens in 1 verifies, and 0 are counted",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize("plant", [told("target_verify", 1, visits=2), publishes("target_verify", 1, visits=2)])
@pytest.mark.parametrize("check", [TOLD, PUBLISHED], ids=lambda check: check.id)
def test_a_wrong_length_is_told_by_its_row_and_its_visit(check: Check, plant: Plant) -> None:
    outcome = judge(check, SESSION, plant)

    for found in outcome.findings:
        assert "[1]=" in found.message
        assert "target_verify, turn " in found.message
        assert "prompt=130, 2 requests]" in found.message


@pytest.mark.parametrize(
    ("padded", "outcome"),
    [
        ((9, 134, 1), Verdict.PASS),
        ((9, 135, 1), Verdict.FAIL),
        ((9, 134, 1, 1), Verdict.PASS),
        ((9,), Verdict.UNKNOWN),
    ],
)
def test_rows_that_pad_are_not_judged_and_missing_ones_are_not_passed(
    padded: tuple[int, ...], outcome: Verdict
) -> None:
    def plant(observed: Observation) -> Observation:
        forward = Forward(1, False, "target_verify", (0, 1), (5, 130), block=BLOCK, reads=(padded,))
        assert observed.session is not None
        return Observation(session=replace(observed.session, forwards=(forward,)))

    assert judge(TOLD, SESSION, plant).verdict is outcome


def test_each_turn_of_a_draft_counts_its_steps_from_the_first() -> None:
    assert judge(TOLD, EAGLE) == PASSED
    assert judge(TOLD, EAGLE_GRAPH) == PASSED


def test_a_forward_without_host_lengths_publishes_none() -> None:
    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        forwards = tuple(replace(forward, host=None) for forward in observed.session.forwards)
        return Observation(session=replace(observed.session, forwards=forwards))

    assert judge(PUBLISHED, SESSION, plant) == NOT_RUN


def test_an_idle_forward_has_no_lengths() -> None:
    def plant(observed: Observation) -> Observation:
        assert observed.session is not None
        idle = Forward(1, False, "idle", (), (), (), reads=((7,),))
        return Observation(session=replace(observed.session, forwards=(idle,)))

    assert judge(TOLD, SESSION, plant) == NOT_RUN
    assert judge(PUBLISHED, SESSION, plant) == NOT_RUN


def test_without_speculation_there_is_no_verify_to_count() -> None:
    assert judge(PROGRESS, PLAIN) == NOT_RUN


def test_a_retracted_visit_is_not_held_to_its_counts_since_they_began_anew() -> None:
    def plant(observed: Observation) -> Observation:
        observed = drifts(1)(observed)
        assert observed.session is not None
        answers = tuple(replace(answer, retractions=1) for answer in observed.session.answers)
        return Observation(session=replace(observed.session, answers=answers))

    assert judge(PROGRESS, SESSION, plant) == PASSED


@pytest.mark.parametrize("check", [TOLD, PUBLISHED, PROGRESS], ids=lambda check: check.id)
def test_a_server_that_never_started_has_no_lengths(check: Check) -> None:
    assert judge(check, SESSION, reported(NEVER_STARTED)) == NOT_RUN
