"""Two looks at one comparison, declared before the first: what each may spend of the error rates.

O'Brien and Fleming's bounds by the spending function of Lan and DeMets. A first look spends little, so a second one, on
fresh prompts, costs nearly nothing of the power, and both together err no more often than one look would.
"""

import math

from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm

from harness.parity.acceptance_statistics import CERTAIN, EQUIVALENCE, Levels


def first_look(fraction: float) -> Levels:
    """The levels of a look at `fraction` of all prompts that were declared."""
    return Levels(*(1 - 2 * _spent((1 - level) / 2, fraction) for level in (EQUIVALENCE, CERTAIN)))


def second_look(fraction: float) -> Levels:
    """The levels of the look at all prompts, of which the first look had `fraction`."""
    return Levels(*(1 - 2 * _left((1 - level) / 2, fraction) for level in (EQUIVALENCE, CERTAIN)))


def _spent(error: float, fraction: float) -> float:
    """The one-sided level of the first look, of `error` in all."""
    return float(2 * norm.sf(norm.isf(error / 2) / math.sqrt(fraction)))


def _left(error: float, fraction: float) -> float:
    """The one-sided level of the second look: both looks together exceed their bounds with the probability `error`."""
    first = norm.isf(_spent(error, fraction))
    both = multivariate_normal(cov=[[1, math.sqrt(fraction)], [math.sqrt(fraction), 1]])
    return float(norm.sf(brentq(lambda second: both.cdf([first, second]) - (1 - error), 0.0, 8.0, xtol=1e-6)))
