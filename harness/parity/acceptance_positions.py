"""Where in the block acceptance differs: a test for each position, and Holm's correction over all of them.

They are told and decide nothing: the verdict is about the length.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from harness.parity.acceptance_counts import Accepted, Floats, reached
from harness.parity.acceptance_run import Step


class Shift(msgspec.Struct, frozen=True):
    """How far a position may have changed: the p-value, corrected for the number of positions; None: not reached.

    Of replayed steps that reach the position on both sides, `lost` are those of which only the reference accepts the
    draft, `won` those of which only the candidate does. A free run has no steps in common, and None for both.
    """

    p: float | None
    lost: int | None = None
    won: int | None = None


def replayed_shifts(
    reference: Mapping[tuple[int, int], Step], candidate: Mapping[tuple[int, int], Step], draft_tokens: int
) -> tuple[Shift, ...]:
    """McNemar's exact test on the steps that disagree, for each of `draft_tokens` - 1 positions.

    Steps of one prompt are taken as independent.
    """
    pairs = np.array([(step.correct, candidate[key].correct) for key, step in reference.items()]).reshape(-1, 2)
    tested = []
    for position in range(1, draft_tokens):
        there = pairs[(pairs >= position - 1).all(axis=1)] >= position
        lost, won = int((there[:, 0] & ~there[:, 1]).sum()), int((~there[:, 0] & there[:, 1]).sum())
        p = float(mcnemar([[0, lost], [won, 0]], exact=True).pvalue) if lost + won else 1.0
        tested.append(Shift(p if len(there) else None, lost, won))
    return _corrected(tested)


def free_shifts(candidate: Accepted, reference: Accepted) -> tuple[Shift, ...]:
    """A t-test on what the prompts contribute to the difference of hazards (delta method), for each position."""
    mine, theirs = _contributions(candidate), _contributions(reference)
    differences = candidate.hazards - reference.hazards
    return _corrected([Shift(_p(own, by)) for own, by in zip((mine - theirs).T, differences, strict=True)])


def _contributions(side: Accepted) -> Floats:
    """What each prompt contributes to each hazard to first order, (prompts, draft tokens - 1)."""
    got = reached(side.histograms)
    with np.errstate(invalid="ignore", divide="ignore"):
        contributed: Floats = (got[:, 1:] - side.hazards * got[:, :-1]) / got[:, :-1].mean(axis=0)
    return contributed


def _p(contributed: Floats, difference: float) -> float | None:
    if not math.isfinite(difference):
        return None
    if np.ptp(contributed) < 1e-12:  # every prompt differs by the same, mostly by nothing
        return float(abs(difference) < 1e-12)
    return float(stats.ttest_1samp(contributed + difference, 0).pvalue)


def _corrected(tested: Sequence[Shift]) -> tuple[Shift, ...]:
    known = [one.p for one in tested if one.p is not None]
    corrected = iter(holm(known))
    return tuple(one if one.p is None else msgspec.structs.replace(one, p=next(corrected)) for one in tested)


def holm(ps: Sequence[float]) -> list[float]:
    """The p-values of one family, corrected so that any of them is below a level by chance as often as it says."""
    return [float(p) for p in multipletests(ps, method="holm")[1]] if ps else []
