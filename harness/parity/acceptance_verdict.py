"""The verdict rule of acceptance parity, how many prompts it takes to decide, and how often it is right."""

import math
from enum import Enum

import msgspec
from scipy.stats import norm

from harness.errors import Exit
from harness.parity.acceptance_statistics import CERTAIN, EQUIVALENCE, Difference

#: Standard errors from the estimate to the ends of the interval, to a one-sided bound of 99 %, and to a power of 90 %.
_TO_END = float(norm.ppf((1 + EQUIVALENCE) / 2))
_TO_BOUND = float(norm.ppf((1 + CERTAIN) / 2))
_TO_POWER = float(norm.ppf(0.90))
#: Beyond so many prompts nobody is told to go.
MOST_PROMPTS = 100_000


class Verdict(Enum):
    """What a comparison comes to, the gravest first."""

    NOT_LOSSLESS = "NOT LOSSLESS"
    REGRESSED = "REGRESSED"
    IMPROVED = "IMPROVED"
    INCONCLUSIVE = "INCONCLUSIVE"
    EQUIVALENT = "EQUIVALENT"

    @property
    def exit_status(self) -> Exit:
        """0 for the same, 3 for what is not decided, 1 for everything else."""
        return {Verdict.EQUIVALENT: Exit.PASSED, Verdict.INCONCLUSIVE: Exit.UNKNOWN}.get(self, Exit.FINDINGS)


#: What says that something is not as it was.
CHANGED = (Verdict.REGRESSED, Verdict.IMPROVED)


def verdict(found: Difference, margin: float, allowance: float, least_prompts: int) -> Verdict:
    """EQUIVALENT: the 90 % interval lies inside the margin on both sides.

    REGRESSED: the one-sided 99 % bound is below what numerics alone may cost (`allowance`), and the interval goes
    beyond the margin; IMPROVED: the mirror image, which is as suspicious. Everything else, and too few prompts for an
    interval, is INCONCLUSIVE.
    """
    if found.prompts < least_prompts:
        return Verdict.INCONCLUSIVE
    if -margin < found.interval.low and found.interval.high < margin:
        return Verdict.EQUIVALENT
    if found.certain.high < -allowance and found.interval.low <= -margin:
        return Verdict.REGRESSED
    if found.certain.low > allowance and found.interval.high >= margin:
        return Verdict.IMPROVED
    return Verdict.INCONCLUSIVE


def prompts_to_decide(
    found: Difference, margin: float, allowance: float, least_prompts: int, truth: float
) -> int | None:
    """How many prompts would decide with a power of 90 % if `truth` were the difference; None: no number would."""
    distance = abs(truth)
    if distance < margin:
        # Both ends of the interval have to be inside; where the truth is 0 both can fail.
        power = _TO_POWER if distance > margin / 4 else float(norm.ppf(0.95))
        needed = ((_TO_END + power) * found.spread / (margin - distance)) ** 2
    else:
        needed = ((_TO_BOUND + _TO_POWER) * found.spread / (distance - allowance)) ** 2
    if needed > MOST_PROMPTS:
        return None
    return max(math.ceil(needed), least_prompts, found.prompts + 1)


class Power(msgspec.Struct, frozen=True):
    """How often the rule says what, where the truth is `drop`, with so many prompts (normal approximation)."""

    drop: float
    prompts: int
    equivalent: float
    regressed: float


def power(spread: float, margin: float, allowance: float, prompts: int, drop: float) -> Power:
    """The power of the rule, at one look, at the spread of a prompt's contribution."""
    error = spread / math.sqrt(prompts)
    if not error:
        return Power(drop, prompts, float(drop < margin), float(drop >= margin))
    inside = margin - _TO_END * error
    equivalent = max(0.0, float(norm.cdf((inside + drop) / error) - norm.cdf((-inside + drop) / error)))
    regressed = float(norm.cdf((min(-allowance - _TO_BOUND * error, -margin + _TO_END * error) + drop) / error))
    return Power(drop, prompts, equivalent, regressed)
