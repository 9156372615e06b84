"""The sequential test: how often it errs, and how soon it ends."""

import random

import pytest

from harness.bisect.sequential import CERTAIN, ERROR, Rates, SequentialTest, lower_bound, rates


def decided(between: Rates, share: float, chance: random.Random) -> tuple[bool, int]:
    """The answer on an sglang that shows the finding in `share` of the runs, and after how many runs."""
    test = SequentialTest(between)
    while test.decided is None:
        test.add(chance.random() < share)
    return test.decided, test.runs


@pytest.mark.parametrize("bad", [0.9, 0.5, 0.2, 0.05])
def test_each_error_is_made_at_most_as_often_as_stated(bad: float) -> None:
    chance = random.Random(7)
    between = rates(bad)
    tries = 4000
    for share, right in ((between.good, False), (between.bad, True)):
        wrong = sum(decided(between, share, chance)[0] is not right for _ in range(tries))
        assert wrong / tries <= 1.5 * ERROR  # 20 expected at most, and 30 are two standard deviations more


def test_a_clear_answer_takes_few_runs() -> None:
    assert decided(rates(0.5), 1.0, random.Random(0)) == (True, 3)
    assert decided(rates(0.5), 0.0, random.Random(0)) == (False, 9)


@pytest.mark.parametrize("shown", [True, False])
def test_one_run_decides_where_the_finding_always_shows(shown: bool) -> None:
    test = SequentialTest(CERTAIN)
    assert test.decided is None
    test.add(shown)
    assert test.decided is shown


def test_the_share_is_bounded_from_below_with_the_stated_confidence() -> None:
    chance = random.Random(3)
    bounds = [lower_bound(shown, 60) for shown in range(61)]
    for share in (0.1, 0.4, 0.8):
        too_high = sum(bounds[sum(chance.random() < share for _ in range(60))] > share for _ in range(4000))
        assert too_high / 4000 <= 1.5 * ERROR
    assert bounds[0] == 0.0
