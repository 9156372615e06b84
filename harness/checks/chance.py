"""Whether a count of random draws is chance: exact binomial tails, for any number of draws and any probability.

Nothing is approximated, so that a rare outcome is judged as rightly as a frequent one; a chi-square is not exact where
fewer than about five are expected.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import exp, fsum, lgamma, log, log1p

#: How often one request of one scenario that is right may be called wrong. A scan judges some thousands of them.
FALSE_ALARM = 1e-9


def least_likely(counts: Iterable[tuple[int, float]], draws: int) -> float:
    """The smallest tail of several counts and their probabilities, as a bound for all of them together (Bonferroni).

    Below FALSE_ALARM it is no chance. Each tail counts twice, since a count can be too high or too low.
    """
    tails = [2 * tail(count, draws, probability) for count, probability in counts]
    return min(1.0, len(tails) * min(tails))


def tail(count: int, draws: int, probability: float) -> float:
    """How likely `count` of `draws`, or a count that is further from what is expected on its side, is."""
    low = fsum(_mass(k, draws, probability) for k in range(count + 1))
    high = fsum(_mass(k, draws, probability) for k in range(count, draws + 1))
    return min(low, high)


@lru_cache(maxsize=1 << 16)
def _mass(count: int, draws: int, probability: float) -> float:
    if probability <= 0.0:
        return float(count == 0)
    if probability >= 1.0:
        return float(count == draws)
    ways = lgamma(draws + 1) - lgamma(count + 1) - lgamma(draws - count + 1)
    return exp(ways + count * log(probability) + (draws - count) * log1p(-probability))
