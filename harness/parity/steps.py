"""Where a series of nights changes its level: a change-point test, no threshold.

Circular binary segmentation (Olshen et al., 2004): it looks for a stretch of nights that differs from the others, so
that a fall which is mended later is found as well as one that stays. Shuffled nights say how clear is clear.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy  # which loads its parts as they are used: `stats` takes a second
from numpy.typing import NDArray

#: How often a series without any step is given one.
LEVEL = 0.01
#: Nights in a level, at least: one odd night is none.
SHORTEST = 2
#: Only the newest nights are looked at: the stretches of more would be too many to shuffle.
NEWEST = 120
RESAMPLES = 1_999
#: Shuffled series that are held at a time.
BATCH = 100

Values = NDArray[np.float64]


class Step(NamedTuple):
    """The level changes before the night of this number.

    `before` and `after` are the levels; `p` is the chance of as clear a step if the order of the nights meant nothing.
    """

    night: int
    before: float
    after: float
    p: float


def steps(values: Sequence[float], level: float = LEVEL) -> list[Step]:
    """Every step of `values`, one number a night, oldest first.

    With fewer than twelve nights no step can be clear enough, and none is found: their orders are too few.
    """
    start = max(0, len(values) - NEWEST)
    newest = np.asarray(values[start:], dtype=np.float64)
    cuts = sorted(_cuts(newest, 0, level))
    while True:
        levels = [newest[first:last] for first, last in pairwise([0, *cuts, len(newest)])]
        chances = [_two_levels(before, after) for before, after in pairwise(levels)]
        if not chances or max(chances) <= level:
            break
        del cuts[int(np.argmax(chances))]
    means = [float(np.mean(one)) for one in levels] if cuts else []
    return [
        Step(start + cut, before, after, chance)
        for cut, (before, after), chance in zip(cuts, pairwise(means), chances, strict=True)
    ]


def _two_levels(before: Values, after: Values) -> float:
    """The chance of means as far apart as those of two neighbouring levels."""
    tested = scipy.stats.permutation_test(
        (before, after),
        lambda one, other, axis: np.abs(one.mean(axis=axis) - other.mean(axis=axis)),
        vectorized=True,
        alternative="greater",
        n_resamples=RESAMPLES,
        batch=BATCH,
        rng=0,
    )
    return float(tested.pvalue)


def _cuts(values: Values, offset: int, level: float) -> list[int]:
    """The edges of the stretch that differs most, where that is clear, and those within each part."""
    nights = len(values)
    if nights < 2 * SHORTEST or not np.ptp(values):
        return []
    first, last = np.triu_indices(nights + 1, SHORTEST)
    apart = (first == 0) | (first >= SHORTEST)
    apart &= (last == nights) | (last <= nights - SHORTEST)
    apart &= last - first <= nights - SHORTEST
    first, last = first[apart], last[apart]

    def clearness(drawn: Values) -> Values:
        """How far the mean of each stretch is from that of the others, in standard errors but for a factor."""
        sums = np.cumsum(np.concatenate([np.zeros_like(drawn[..., :1]), drawn], axis=-1), axis=-1)
        inside, length = sums[..., last] - sums[..., first], last - first
        gap = inside / length - (sums[..., -1:] - inside) / (nights - length)
        clear: Values = np.abs(gap) * np.sqrt(length * (nights - length))
        return clear

    tested = scipy.stats.permutation_test(
        (values,),
        lambda drawn, axis: clearness(drawn).max(axis=-1),
        permutation_type="pairings",
        vectorized=True,
        alternative="greater",
        n_resamples=RESAMPLES,
        batch=BATCH,
        rng=0,
    )
    if tested.pvalue > level:
        return []
    best = int(np.argmax(clearness(values)))
    found = [cut for cut in (int(first[best]), int(last[best])) if 0 < cut < nights]
    parts = pairwise([0, *found, nights])
    return [offset + cut for cut in found] + [
        cut for start, end in parts for cut in _cuts(values[start:end], offset + start, level)
    ]
