"""The comparisons of one night as a family: what is found in many cells is found by chance in some."""

from collections.abc import Sequence

from msgspec.structs import replace

from harness.parity.acceptance_comparison import Comparison, Rung, gravest
from harness.parity.acceptance_positions import holm
from harness.parity.acceptance_statistics import CERTAIN
from harness.parity.acceptance_verdict import CHANGED, Verdict


def held(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons with their verdicts held to Holm's correction over all rungs of all of them.

    A rung that is REGRESSED or IMPROVED, and by the corrected p-value is so by chance in more than 1 % of such nights,
    is INCONCLUSIVE. That a rung is EQUIVALENT needs no correction, since all have to be; wrong tokens are no chance.
    """
    if len(comparisons) < 2:
        return list(comparisons)
    corrected = iter(holm([rung.change_p for one in comparisons for rung in one.rungs]))
    return [_with(one, [_held(rung, next(corrected)) for rung in one.rungs]) for one in comparisons]


def _held(rung: Rung, corrected: float) -> Rung:
    if rung.verdict in CHANGED and corrected > (1 - CERTAIN) / 2:
        return replace(rung, verdict=Verdict.INCONCLUSIVE)
    return rung


def _with(comparison: Comparison, rungs: Sequence[Rung]) -> Comparison:
    return replace(comparison, rungs=tuple(rungs), verdict=gravest(comparison.exactness, rungs))
