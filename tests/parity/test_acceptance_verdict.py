"""The verdict rule, at its edges and on simulated nights."""

import pytest

from benchmarks.acceptance import (
    FIVE_PERCENT,
    NO_CHANGE,
    NUMERICS,
    TWO_PERCENT,
    Plan,
    free_night,
    part,
    plans,
    rates,
)
from harness.errors import Exit
from harness.parity.acceptance_margins import margins
from harness.parity.acceptance_statistics import Difference, Interval
from harness.parity.acceptance_verdict import Verdict, power, prompts_to_decide, verdict

MARGIN, ALLOWANCE, LEAST = 0.02, 0.004, 16


def found(low: float, high: float, bound: float = 0.0, spread: float = 0.06, prompts: int = 64) -> Difference:
    """A difference whose interval is given, and whose bounds of 99 % lie `bound` further out."""
    return Difference((low + high) / 2, Interval(low, high), Interval(low - bound, high + bound), spread, prompts)


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (found(-0.019, 0.019), Verdict.EQUIVALENT),
        (found(0.0, 0.0, spread=0.0), Verdict.EQUIVALENT),
        (found(-0.02, 0.01), Verdict.INCONCLUSIVE),
        (found(-0.03, -0.01, bound=0.005), Verdict.REGRESSED),
        (found(-0.03, -0.01, bound=0.007), Verdict.INCONCLUSIVE),  # numerics of one side may cost 0.4 %
        (found(-0.03, -0.01, bound=0.02), Verdict.INCONCLUSIVE),  # the bound of 99 % is above zero
        (found(-0.01, -0.005, bound=0.001), Verdict.EQUIVALENT),  # less, and within the margin
        (found(0.01, 0.03, bound=0.005), Verdict.IMPROVED),
        (found(0.01, 0.03, bound=0.007), Verdict.INCONCLUSIVE),
        (found(-0.05, 0.05), Verdict.INCONCLUSIVE),
        (found(-0.9, -0.8, prompts=LEAST - 1), Verdict.INCONCLUSIVE),
        (found(0.0, 0.0, spread=0.0, prompts=LEAST - 1), Verdict.INCONCLUSIVE),
    ],
)
def test_the_rule_at_its_edges(difference: Difference, expected: Verdict) -> None:
    assert verdict(difference, MARGIN, ALLOWANCE, LEAST) is expected


def test_each_verdict_has_its_exit_status() -> None:
    assert {one: one.exit_status for one in Verdict} == {
        Verdict.EQUIVALENT: Exit.PASSED,
        Verdict.INCONCLUSIVE: Exit.UNKNOWN,
        Verdict.REGRESSED: Exit.FINDINGS,
        Verdict.IMPROVED: Exit.FINDINGS,
        Verdict.NOT_LOSSLESS: Exit.FINDINGS,
    }


@pytest.mark.parametrize("estimate", [0.0, -0.01, -0.03, 0.04])
def test_with_as_many_prompts_as_are_told_the_rule_decides_in_nine_nights_of_ten(estimate: float) -> None:
    needed = prompts_to_decide(found(estimate - 0.03, estimate + 0.03), MARGIN, ALLOWANCE, LEAST, estimate)
    assert needed is not None
    at = power(0.06, MARGIN, ALLOWANCE, needed, abs(estimate))

    assert (at.equivalent if abs(estimate) < MARGIN else at.regressed) > 0.89


def test_at_the_margin_no_number_of_prompts_decides_and_few_are_told_the_least() -> None:
    assert prompts_to_decide(found(-0.0499, 0.0101), MARGIN, ALLOWANCE, LEAST, -0.0199) is None
    assert prompts_to_decide(found(0.0, 0.0, spread=0.0, prompts=3), MARGIN, ALLOWANCE, LEAST, 0.0) == LEAST


def test_the_power_curve_is_what_nights_show() -> None:
    """The normal approximation beside simulated nights, at a drop of two percent by free run."""
    shown = part(rates(Plan("free", 256), TWO_PERCENT, 60), Verdict.REGRESSED)

    assert power(0.073, MARGIN, ALLOWANCE, 256, 0.0201).regressed == pytest.approx(shown, abs=0.12)


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: f"{plan.design}-{1 + plan.two_looks}")
def test_nights_without_a_change_do_not_regress_and_nights_with_a_drop_do(plan: Plan) -> None:
    nights = 30

    assert part(rates(plan, NO_CHANGE, nights), Verdict.REGRESSED) <= 1 / nights
    assert part(rates(plan, NUMERICS, nights), Verdict.REGRESSED) <= 1 / nights
    assert part(rates(plan, TWO_PERCENT, nights), Verdict.REGRESSED) >= 24 / nights
    assert part(rates(plan, FIVE_PERCENT, nights), Verdict.REGRESSED) == 1


def test_simulated_nights_have_the_published_structure() -> None:
    import numpy as np

    night = free_night(np.random.default_rng(0), 2048, NO_CHANGE)

    assert night.reference.length == pytest.approx(6.35, abs=0.1)
    assert night.reference.verifies.mean() == pytest.approx(51.5, abs=1.5)
    assert 0.17 < night.reference.lengths.std() / night.reference.lengths.mean() < 0.21


def test_every_margin_has_a_source_and_a_date() -> None:
    told = margins()
    numbers = [told.least_prompts, told.noise_factor, told.allowance, *told.near_tie.values()]
    planned = [margin for profile in told.profiles.values() for margin in profile.values()]

    assert all(one.source and one.date for one in (*numbers, *planned))
    assert all(profile.keys() == {"replay", "free"} for profile in told.profiles.values())
