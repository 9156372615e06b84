"""Which tokens have to be the same, and how near a tie is."""

import pytest
from msgspec.structs import replace

from harness.errors import UsageError
from harness.parity.acceptance_exactness import Mismatch, exactness, near_tie
from harness.parity.acceptance_run import Run, Scored
from harness.parity.acceptance_verdict import Verdict
from tests.parity.made_runs import GAP, HEADER, SYSTEM, alike, records, reply, run, scored

OTHER = (0, 1, 2, 99, 4, 5, 6, 7)  # from place 3 on another answer
REFERENCE = run(records(alike()))
UNKNOWN_NOISE = replace(HEADER, system=replace(SYSTEM, device="npu", dtype="bfloat16"))


def _with_another_answer(gap: float) -> tuple[Run, Run]:
    """A reference that leads by `gap` where the candidate's first answer differs, and the candidate."""
    return run(records(alike(), {3: gap})), run([reply(0, tokens=OTHER), *alike()[1:]])


def test_the_same_answers_are_exact_and_every_token_is_counted() -> None:
    found = exactness(REFERENCE, run(records(alike())), None)

    assert (found.verdict, found.wrong, found.compared) == (Verdict.EQUIVALENT, 0, 3 * 24 * 8)


def test_another_token_with_the_same_acceptance_is_not_lossless() -> None:
    found = exactness(*_with_another_answer(GAP), None)

    assert (found.verdict, found.wrong) == (Verdict.NOT_LOSSLESS, 1)
    assert str(found.told[0]) == "answers: token 3 of prompt 0 is 99, but should be 3 (it leads by 2.5 nats)"


def test_another_token_at_a_near_tie_is_none_and_what_follows_is_not_compared() -> None:
    found = exactness(*_with_another_answer(0.0005), None)

    assert (found.verdict, found.wrong, found.near_ties) == (Verdict.EQUIVALENT, 0, 1)


def test_an_answer_that_is_not_its_own_targets_is_found_without_looking_at_the_reference() -> None:
    answer = reply(0, tokens=OTHER)
    own = Scored(0, "own", tuple(range(8)), (GAP,) * 8)
    found = exactness(run(records([answer])), run([answer, own]), None)

    assert found.verdict is Verdict.NOT_LOSSLESS
    assert found.told == (Mismatch("candidate's own", 0, 3, 99, 3, GAP),)


def test_a_target_that_chooses_otherwise_along_the_same_answer_is_found() -> None:
    forced = Scored(0, "base", OTHER, (GAP,) * 8)
    header = replace(HEADER, base=REFERENCE.digest)
    found = exactness(REFERENCE, run([*records(alike()), forced], header), None)

    assert [str(one) for one in found.told] == [
        "forced: token 3 of prompt 0 is 99, but should be 3 (it leads by 2.5 nats)"
    ]


def test_an_answer_that_is_cut_short_is_not_lossless() -> None:
    found = exactness(REFERENCE, run([reply(0, tokens=range(6)), *alike()[1:]]), None)

    assert found.verdict is Verdict.NOT_LOSSLESS
    assert str(found.told[0]) == "answers: token 6 of prompt 0 is missing, but should be 6 (it leads by 2.5 nats)"


def test_where_nobody_measured_the_noise_a_difference_is_not_judged() -> None:
    reference, candidate = (side._replace(header=UNKNOWN_NOISE) for side in _with_another_answer(GAP))
    found = exactness(reference, candidate, None)

    assert (found.verdict, found.unjudged, found.bound) == (Verdict.INCONCLUSIVE, 1, None)
    assert exactness(reference, reference, None).verdict is Verdict.EQUIVALENT  # nothing differs


def test_where_nobody_scored_a_difference_is_not_judged() -> None:
    candidate = run([reply(0, tokens=OTHER), *alike()[1:]])
    found = exactness(run(alike()), candidate, None)

    assert (found.verdict, found.unjudged) == (Verdict.INCONCLUSIVE, 1)
    assert str(found.told[0]).endswith("(nobody scored it)")


def test_two_runs_of_one_system_measure_how_near_a_tie_is() -> None:
    def of(gap: float, choice: int) -> Run:
        choices = (*range(3), choice, *range(4, 8))
        return run([reply(0), Scored(0, "own", choices, (GAP, GAP, GAP, gap, *(GAP,) * 4))], UNKNOWN_NOISE)

    agreeing = near_tie(SYSTEM, SYSTEM, (of(0.25, 3), of(0.2, 3)))
    exchanged = near_tie(SYSTEM, SYSTEM, (of(0.25, 3), of(0.2, 99)))

    assert agreeing is not None and exchanged is not None
    assert agreeing.value == pytest.approx(1.5 * 0.05)  # both chose the same
    assert exchanged.value == pytest.approx(1.5 * 0.45)  # the tie was turned over


def test_a_prompt_that_only_one_side_scored_is_compared_by_its_answer() -> None:
    found = exactness(run([*alike(), scored(reply(0))]), run(alike()), None)

    assert (found.verdict, found.compared) == (Verdict.EQUIVALENT, 24 * 8 + 8)


def test_two_runs_of_one_system_that_went_their_own_ways_measure_no_noise() -> None:
    other = run(records([reply(0, tokens=OTHER), *alike()[1:]]), name="again.jsonl")

    with pytest.raises(UsageError, match=r"again\.jsonl were scored along other answers.*--base run\.jsonl"):
        near_tie(SYSTEM, SYSTEM, (REFERENCE, other))
