"""Where in the block acceptance differs: exact tests of replayed steps, and what several tests may find by chance."""

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.stats import binomtest

from harness.parity.acceptance_comparison import Comparison, compare
from harness.parity.acceptance_counts import Accepted
from harness.parity.acceptance_family import held
from harness.parity.acceptance_positions import Shift, free_shifts, holm, replayed_shifts
from harness.parity.acceptance_run import Step
from harness.parity.acceptance_verdict import Verdict
from tests.parity.made_runs import alike, records, reply, run
from tests.parity.test_acceptance_statistics import drawn

Steps = dict[tuple[int, int], Step]
BLOCK = 8


def steps(hits: np.ndarray) -> Steps:
    """Steps of which `hits` (steps, positions) says where the draft is right; twenty of each prompt."""
    missed = np.concatenate([~hits, np.ones((len(hits), 1), bool)], axis=1)
    correct = missed.argmax(axis=1).tolist()
    return {(n // 20, n % 20): Step(n // 20, n % 20, one) for n, one in enumerate(correct)}


def hits(seed: int, count: int = 2000) -> np.ndarray:
    """Where the draft of each step is right, (steps, positions)."""
    return np.random.default_rng(seed).random((count, BLOCK - 1)) < 0.85


def test_steps_that_disagree_are_counted_where_both_sides_reach_the_position() -> None:
    reference = {(0, n): Step(0, n, correct) for n, correct in enumerate((2, 2, 2, 0, 3))}
    candidate = {(0, n): Step(0, n, correct) for n, correct in enumerate((2, 1, 1, 1, 3))}

    assert replayed_shifts(reference, candidate, 4) == (
        Shift(1.0, 0, 1),  # the fourth step alone: 0 and 1
        Shift(1.0, 2, 0),  # the second and the third: 2 and 1
        Shift(1.0, 0, 0),
    )


def test_numerics_that_flip_both_ways_are_no_shift() -> None:
    reference, candidate = hits(1), hits(1)
    drawn_again = np.random.default_rng(2).random(reference.shape) < 0.02
    candidate[drawn_again] = hits(3)[drawn_again]
    shifts = replayed_shifts(steps(reference), steps(candidate), BLOCK)

    assert all(one.p is not None and one.p > 0.01 for one in shifts)


def test_a_position_that_loses_drafts_is_found_and_no_other() -> None:
    reference, candidate = hits(1), hits(1)
    candidate[::40, 4] = False
    shifts = replayed_shifts(steps(reference), steps(candidate), BLOCK)
    lost, won = shifts[4].lost, shifts[4].won

    assert [one.p is not None and one.p < 0.01 for one in shifts] == [False] * 4 + [True] + [False] * 2
    assert lost and not won
    assert shifts[4].p == pytest.approx(7 * binomtest(0, lost, 0.5).pvalue)


def test_a_position_that_nothing_reaches_is_not_tested() -> None:
    never = {(0, n): Step(0, n, 0) for n in range(20)}
    nothing = Accepted(np.tile([5, 0, 0], (20, 1)))

    assert [one.p for one in replayed_shifts(never, never, 4)] == [1.0, None, None]
    assert [one.p for one in free_shifts(nothing, nothing)] == [1.0, None]


def test_hazards_of_free_runs_differ_by_chance_as_rarely_as_the_level_says() -> None:
    found = 0
    for night in range(100):
        shifts = free_shifts(drawn(2 * night), drawn(2 * night + 1))
        found += any(one.p is not None and one.p < 0.05 for one in shifts)

    assert found <= 11  # 5 in a hundred, and 2.7 standard deviations


def test_a_hazard_of_a_free_run_that_falls_is_found() -> None:
    assert max(one.p or 0 for one in free_shifts(drawn(1, hazard=0.7), drawn(3))) < 0.01


def test_holm_corrects_for_all_that_are_left() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


def cell(seed: int, drop: int = 0) -> Comparison:
    """A comparison of 24 prompts, whose counts scatter; `drop` verifies of each accept nothing in place of all."""
    rng = np.random.default_rng(seed)
    mine = [reply(number, (2 + drop + int(rng.integers(0, 3)), 1, 1, 26 - drop)) for number in range(24)]
    theirs = [reply(number, (2 + int(rng.integers(0, 3)), 1, 1, 26)) for number in range(24)]
    return compare(run(records(theirs)), run(records(mine)))


def test_of_many_cells_one_that_drops_by_chance_is_not_held_and_one_that_drops_is() -> None:
    chance = cell(0)
    rung = chance.rungs[0]
    nearly = replace(rung, verdict=Verdict.REGRESSED, change_p=0.005)
    suspicious = replace(chance, rungs=(nearly,), verdict=Verdict.REGRESSED)
    dropped = cell(1, drop=6)
    same = compare(run(records(alike())), run(records(alike())))
    assert dropped.verdict is Verdict.REGRESSED

    assert [one.verdict for one in held([suspicious, dropped, *[same] * 38])] == [
        Verdict.INCONCLUSIVE,
        Verdict.REGRESSED,
        *[Verdict.EQUIVALENT] * 38,
    ]
    assert held([suspicious]) == [suspicious]


def test_wrong_tokens_are_no_chance_in_any_number_of_cells() -> None:
    wrong = compare(run(records(alike())), run(records([reply(0, tokens=[9] * 8), *alike()[1:]])))

    assert {one.verdict for one in held([wrong] * 40)} == {Verdict.NOT_LOSSLESS}
