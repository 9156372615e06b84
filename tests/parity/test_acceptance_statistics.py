"""Estimates, intervals and tests of acceptance, on numbers worked out by hand and on seeded ones."""

import math

import numpy as np
import pytest

from harness.parity.acceptance_counts import Accepted, hazards
from harness.parity.acceptance_statistics import (
    contributions,
    curve_p,
    difference,
    drop_p,
    equivalence_p,
    hazard_intervals,
    relative_difference,
)

TWO_PROMPTS = Accepted(np.array([[1, 0, 1], [0, 0, 4]]))  # 4 tokens in 2 verifies, and 12 in 4


def drawn(seed: int, prompts: int = 64, hazard: float = 0.8, steps: int = 50, block: int = 8) -> Accepted:
    """Independent steps with the same hazard at every position."""
    rng = np.random.default_rng(seed)
    accepted = np.minimum(rng.geometric(1 - hazard, (prompts, steps)) - 1, block - 1)
    return Accepted(np.stack([np.bincount(row, minlength=block) for row in accepted]))


def test_the_acceptance_length_is_a_ratio_of_sums_and_no_mean_of_ratios() -> None:
    assert TWO_PROMPTS.length == 16 / 6
    assert TWO_PROMPTS.per_request == (4 / 2 + 12 / 4) / 2


def test_a_hazard_is_what_was_accepted_of_what_was_reached() -> None:
    assert hazards(np.array([2, 1, 1, 6])) == pytest.approx([8 / 10, 7 / 8, 6 / 7])
    assert math.isnan(hazards(np.array([5, 0, 0]))[1])


def test_contributions_are_the_first_order_of_the_difference() -> None:
    candidate, reference = drawn(1), drawn(2)
    without_first = [side.histograms[1:] for side in (candidate, reference)]
    full = candidate.length / reference.length - 1
    less = Accepted(without_first[0]).length / Accepted(without_first[1]).length - 1

    assert contributions(candidate, reference).mean() == pytest.approx(0, abs=1e-12)
    assert contributions(candidate, reference)[0] == pytest.approx(63 * (full - less), rel=0.1)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    held = 0
    for night in range(200):
        found = difference(drawn(2 * night, 40), drawn(2 * night + 1, 40), resamples=499)
        held += found.interval.low <= 0 <= found.interval.high
        assert found.certain.low <= found.interval.low < found.interval.high <= found.certain.high

    assert 165 <= held <= 193  # of a true 90 %, that is within 3.5 standard deviations


def test_two_runs_without_any_difference_need_no_resampling() -> None:
    found = difference(drawn(1), drawn(1))

    assert (found.estimate, found.interval, found.certain, found.spread) == (0, (0, 0), (0, 0), 0)


def test_one_prompt_that_differs_gives_an_interval_that_is_finite() -> None:
    changed = drawn(1).histograms.copy()
    changed[0] = np.roll(changed[0], 1)
    found = difference(Accepted(changed), drawn(1))

    assert all(math.isfinite(end) for end in (*found.interval, *found.certain))
    assert found.interval.low <= found.estimate <= found.interval.high


def test_the_difference_of_sums_is_over_the_axis_that_resampling_asks_for() -> None:
    sides = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 2)), np.array([[2.0, 2.0], [2.0, 2.0]]), np.ones((2, 2))]

    assert relative_difference(*sides) == pytest.approx([-0.25, 0.75])


def test_the_tests_see_a_drop_and_nothing_where_there_is_none() -> None:
    reference, same, less = drawn(1), drawn(3), drawn(5, hazard=0.75)
    alike, dropped = difference(same, reference), difference(less, reference)

    assert equivalence_p(alike, contributions(same, reference), 0.2) < 0.001
    assert equivalence_p(dropped, contributions(less, reference), 0.02) > 0.99
    assert drop_p(less, reference) < 0.001 < drop_p(same, reference)
    assert curve_p(less, reference) < 0.001 < curve_p(same, reference)


def test_the_log_rank_test_sees_a_change_of_shape_that_leaves_the_mean() -> None:
    early_or_never = np.tile([25, 0, 25], (20, 1))
    in_the_middle = np.tile([0, 50, 0], (20, 1))

    assert Accepted(early_or_never).length == Accepted(in_the_middle).length
    assert curve_p(Accepted(early_or_never), Accepted(in_the_middle)) < 1e-6


def test_where_every_draft_is_accepted_no_test_says_a_thing() -> None:
    full = Accepted(np.tile([0, 0, 9], (20, 1)))

    assert (curve_p(full, full), drop_p(full, full)) == (1.0, 1.0)
    assert hazard_intervals(full) == ((1.0, 1.0), (1.0, 1.0))


def test_an_interval_of_a_hazard_holds_it_and_is_nan_where_nothing_got() -> None:
    side = drawn(1)
    for hazard, (low, high) in zip(side.hazards, hazard_intervals(side), strict=True):
        assert low <= hazard <= high

    assert all(map(math.isnan, hazard_intervals(Accepted(np.tile([5, 0, 0], (20, 1))))[1]))
