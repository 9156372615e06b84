"""Steps of a series: a change of level is found where it is, and noise is none."""

import numpy as np
import pytest

from harness.parity.steps import LEVEL, steps


def test_a_change_of_level_is_found_at_its_night_with_both_levels() -> None:
    (step,) = steps([4.8, 4.7, 4.9, 4.8, 4.8, 4.7, 1.9, 1.8, 1.9, 1.9, 2.0, 1.9])
    assert step.night == 6
    assert step.before == pytest.approx(4.783, abs=1e-3)
    assert step.after == pytest.approx(1.9)
    assert step.p <= LEVEL


def test_a_fall_and_a_rise_are_two_steps() -> None:
    assert [step.night for step in steps([5.0] * 10 + [1.0] * 8 + [5.0] * 10)] == [10, 18]


def test_a_level_that_never_changes_has_no_step() -> None:
    assert steps([4.8] * 50) == []


def test_one_odd_night_is_no_step() -> None:
    assert steps([*[4.8, 4.7, 4.9] * 6, 0.1, *[4.8, 4.7, 4.9] * 6]) == []


@pytest.mark.parametrize("nights", range(12))
def test_too_few_nights_show_no_step_however_large(nights: int) -> None:
    assert steps([1.0] * (nights // 2) + [9.0] * (nights - nights // 2)) == []


def test_noise_alone_is_given_a_step_as_rarely_as_promised() -> None:
    draw = np.random.default_rng(20261130)
    series = draw.normal(4.8, 0.1, (200, 30))
    assert sum(bool(steps(list(nights))) for nights in series) <= 6
