"""Binomial tails, against what can be counted by hand, and how often a right subject is called wrong."""

from math import comb

import numpy as np
import pytest

from harness.checks.chance import FALSE_ALARM, least_likely, tail


@pytest.mark.parametrize(
    ("count", "draws", "probability", "expected"),
    [
        (3, 3, 0.5, 1 / 8),
        (0, 3, 0.5, 1 / 8),
        (2, 3, 0.5, 4 / 8),
        (1, 1, 0.25, 0.25),
        (0, 10, 0.0, 1.0),
        (1, 10, 0.0, 0.0),
        (10, 10, 1.0, 1.0),
        (9, 10, 1.0, 0.0),
        (7, 20, 0.1, sum(comb(20, k) * 0.1**k * 0.9 ** (20 - k) for k in range(7, 21))),
    ],
)
def test_a_tail_is_the_sum_of_what_is_at_least_as_far(
    count: int, draws: int, probability: float, expected: float
) -> None:
    assert tail(count, draws, probability) == pytest.approx(expected, rel=1e-12)


def test_several_counts_are_bound_together() -> None:
    assert least_likely([(3, 0.5), (1, 0.5)], 3) == pytest.approx(2 * 2 / 8)


def test_draws_of_the_right_distribution_are_not_called_wrong_at_ten_thousand_times_the_rate() -> None:
    """With 1e-5 instead of 1e-9, two thousand right subjects have an alarm in 2 % of all cases; this seed has none."""
    random, odds = np.random.default_rng(0), [0.5, 0.3, 0.15, 0.0499, 0.0001]
    alarms = [least_likely(zip(random.multinomial(256, odds).tolist(), odds, strict=True), 256) for _ in range(2000)]

    assert min(alarms) > 1e-5
    assert FALSE_ALARM == 1e-9
