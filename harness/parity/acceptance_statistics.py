"""The statistics of a paired comparison of acceptance lengths, over prompts; scipy and statsmodels do the work."""

import math
import warnings
from typing import NamedTuple

import msgspec
import numpy as np
from scipy import stats
from statsmodels.duration.survfunc import survdiff
from statsmodels.stats.weightstats import ttost_paired

from harness.parity.acceptance_counts import Accepted, Counts, Floats, hazards

RESAMPLES = 9999
SEED = 0
#: Two-sided levels: the interval of the equivalence test, and the one whose ends are one-sided bounds of 99 %.
EQUIVALENCE, CERTAIN = 0.90, 0.98


class Levels(NamedTuple):
    """Two-sided levels of the interval that shows equivalence, and of the one whose ends are bounds."""

    equivalence: float = EQUIVALENCE
    certain: float = CERTAIN


ONE_LOOK = Levels()


class Interval(NamedTuple):
    """Low and high end."""

    low: float
    high: float


class Difference(msgspec.Struct, frozen=True):
    """By how much the candidate's acceptance length differs, as a part of the reference's.

    `interval` is the 90 % confidence interval; `certain` has the one-sided 99 % bounds as its ends; where there are two
    looks, both have the levels of the look. `spread` is the standard deviation of what one prompt contributes, so the
    standard error is spread / sqrt(prompts).
    """

    estimate: float
    interval: Interval
    certain: Interval
    spread: float
    prompts: int


def relative_difference(*sides: Floats, axis: int = -1) -> Floats:
    """The ratio of two ratios of sums, less one: of tokens by verifies, the candidate's and then the reference's."""
    tokens, verifies, ref_tokens, ref_verifies = (side.sum(axis=axis) for side in sides)
    ratio: Floats = (tokens / verifies) / (ref_tokens / ref_verifies) - 1
    return ratio


def contributions(candidate: Accepted, reference: Accepted) -> Floats:
    """What each prompt contributes to the relative difference to first order (delta method), (prompts,), mean 0."""

    def one(side: Accepted) -> Floats:
        rest: Floats = (side.tokens - side.length * side.verifies) / (side.length * side.verifies.mean())
        return rest

    return (candidate.length / reference.length) * (one(candidate) - one(reference))


def difference(
    candidate: Accepted, reference: Accepted, resamples: int = RESAMPLES, levels: Levels = ONE_LOOK
) -> Difference:
    """The relative difference with BCa bootstrap intervals over prompts, which are paired, from a fixed seed."""
    sides = (candidate.tokens, candidate.verifies, reference.tokens, reference.verifies)
    data = tuple(side.astype(np.float64) for side in sides)
    estimate = float(relative_difference(*data))
    contributed = contributions(candidate, reference)
    prompts = len(contributed)
    spread = float(contributed.std(ddof=1)) if prompts > 1 else 0.0
    if spread < 1e-12:  # every prompt differs by the same, mostly by nothing: there is nothing to resample
        point = Interval(estimate, estimate)
        return Difference(estimate, point, point, spread, prompts)
    ends = []
    drawn = None
    for level in levels:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.DegenerateDataWarning)
            drawn = stats.bootstrap(
                data,
                relative_difference,
                n_resamples=0 if drawn else resamples,
                bootstrap_result=drawn,
                confidence_level=level,
                paired=True,
                vectorized=True,
                axis=-1,
                method="BCa",
                rng=np.random.default_rng(SEED),
                batch=1000,
            )
        found = Interval(float(drawn.confidence_interval.low), float(drawn.confidence_interval.high))
        ends.append(found if math.isfinite(found.low + found.high) else _percentiles(drawn, level))
    return Difference(estimate, ends[0], ends[1], spread, prompts)


def _percentiles(drawn: object, level: float) -> Interval:
    """The plain interval of the same resamples, where nearly all are on one side of the estimate."""
    low, high = np.quantile(getattr(drawn, "bootstrap_distribution"), ((1 - level) / 2, (1 + level) / 2))  # noqa: B009
    return Interval(float(low), float(high))


def equivalence_p(found: Difference, contributed: Floats, margin: float) -> float:
    """The p-value of two one-sided t-tests (TOST) on the prompts' contributions: small where the two are the same."""
    if not found.spread:
        return float(abs(found.estimate) >= margin)
    moved = contributed + found.estimate
    return float(ttost_paired(moved, np.zeros_like(moved), -margin, margin)[0])


def change_p(found: Difference, contributed: Floats, allowance: float) -> float:
    """The one-sided p-value of a t-test that more has changed, in its own direction, than `allowance` accounts for."""
    beyond = abs(found.estimate) - allowance
    if not found.spread:
        return float(beyond <= 0)
    tested = stats.ttest_1samp(contributed + beyond, 0.0, alternative="greater")
    return float(tested.pvalue)


def drop_p(candidate: Accepted, reference: Accepted, resamples: int = RESAMPLES) -> float:
    """The one-sided p-value of a paired permutation test: small where the candidate accepts less.

    Per prompt the two sides are exchanged, tokens and verifies together.
    """
    signed = contributions(candidate, reference) + (candidate.length / reference.length - 1)
    if not signed.any():
        return 1.0
    tested = stats.permutation_test(
        (signed,),
        lambda values, axis: values.mean(axis=axis),
        permutation_type="samples",
        alternative="less",
        n_resamples=resamples,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return float(tested.pvalue)


def curve_p(candidate: Accepted, reference: Accepted) -> float:
    """The p-value of a log-rank test, stratified by prompt, of how far verifies get into the block.

    A verify that accepts every draft is censored. It sees a change of shape that leaves the mean as it is; steps of
    one prompt are taken as independent, so it is told and decides nothing.
    """
    last = candidate.histograms.shape[1] - 1
    columns: list[Counts] = []
    for group, side in enumerate((reference, candidate)):
        prompt, accepted = np.nonzero(side.histograms)
        times = side.histograms[prompt, accepted]
        rows = np.stack([accepted + 1, accepted < last, np.full_like(prompt, group), prompt])
        columns.append(np.repeat(rows, times, axis=1))
    time, ends, group_of, prompt_of = np.concatenate(columns, axis=1)
    if not ends.any():
        return 1.0
    with np.errstate(invalid="ignore", divide="ignore"):
        p = float(survdiff(time, ends, group_of, strata=prompt_of)[1])
    return p if math.isfinite(p) else 1.0


def hazard_intervals(side: Accepted, resamples: int = 999) -> tuple[Interval, ...]:
    """95 % percentile intervals over prompts of the hazard at each position; NaN where nothing reached."""
    rng = np.random.default_rng(SEED)
    prompts = len(side.histograms)
    weights = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)
    drawn = hazards(weights @ side.histograms)
    ends = []
    for column in drawn.T:
        there = column[np.isfinite(column)]
        low, high = np.quantile(there, (0.025, 0.975)) if len(there) else (math.nan, math.nan)
        ends.append(Interval(float(low), float(high)))
    return tuple(ends)
