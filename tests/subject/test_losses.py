"""When a loss is its scenario's doing, and when a run has lost enough."""

import pytest

from harness.scenario.observation import Fault
from harness.subject.losses import ANSWERS_PER_CRASH, COSTLY_TRIES, MAX_COSTLY, MAX_CRASHES, Losses

CRASH = Fault("crash", "the subject was killed by SIGABRT")
HANG = Fault("hang", "no answer within 60 s")
PROTOCOL = Fault("protocol", "the other side closed the connection")


@pytest.mark.parametrize(
    ("answered", "unreproduced", "tries"), [(0, 0, 4), (1000, 0, 3), (1000, 10, 4), (1000, 100, 8), (10**6, 0, 3)]
)
def test_the_more_crashes_by_chance_the_more_often_a_scenario_is_asked(
    answered: int, unreproduced: int, tries: int
) -> None:
    assert Losses(answered=answered, unreproduced=unreproduced).tries(CRASH) == tries


@pytest.mark.parametrize("unreproduced", [0, 10, 1000])
@pytest.mark.parametrize("fault", [HANG, PROTOCOL])
def test_what_costs_long_is_asked_but_once_again(fault: Fault, unreproduced: int) -> None:
    assert Losses(unreproduced=unreproduced).tries(fault) == COSTLY_TRIES


def test_a_subject_that_only_crashes_is_asked_a_bounded_number_of_times() -> None:
    assert Losses(answered=1, unreproduced=10**6).tries(CRASH) < 30


@pytest.mark.parametrize(("fault", "most"), [(CRASH, MAX_CRASHES), (HANG, MAX_COSTLY), (PROTOCOL, MAX_COSTLY)])
def test_a_run_that_loses_everything_has_lost_enough_after_a_fixed_number(fault: Fault, most: int) -> None:
    losses = Losses()
    for _ in range(most):
        losses.add(fault)
    assert not losses.enough
    losses.add(fault)
    assert losses.enough


def test_a_run_bears_more_crashes_the_more_it_answers() -> None:
    losses = Losses(answered=1000, crashes=MAX_CRASHES + 1000 // ANSWERS_PER_CRASH)
    assert not losses.enough
    losses.add(CRASH)
    assert losses.enough


def test_a_run_bears_no_more_hangs_the_more_it_answers() -> None:
    assert Losses(answered=10**6, costly=MAX_COSTLY + 1).enough


def test_one_step_in_ten_that_crashes_by_chance_is_borne_for_ever() -> None:
    for answered in range(0, 10**6, 1000):
        assert not Losses(answered=answered, crashes=answered * 14 // 100).enough


def test_excused_losses_are_counted_with_the_last_of_them() -> None:
    losses = Losses()
    losses.excuse(HANG)
    losses.excuse(CRASH, 3)
    assert losses == Losses(unreproduced=4, last="crash: the subject was killed by SIGABRT")
