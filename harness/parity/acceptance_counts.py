"""What was accepted, as counts by prompt, and the estimates that are made of them.

The prompt is the unit: steps of one prompt resemble one another, so nothing here treats them as independent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.parity.acceptance_run import Reply, Step

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]


class Accepted(NamedTuple):
    """`histograms[i, k]`: in how many verifies of prompt i were k drafts accepted; shape (prompts, draft tokens)."""

    histograms: Counts

    @property
    def verifies(self) -> Counts:
        """Verifies of each prompt, (prompts,)."""
        counted: Counts = self.histograms.sum(axis=1)
        return counted

    @property
    def tokens(self) -> Counts:
        """Tokens of the verifies of each prompt, bonus included and the last step whole, (prompts,)."""
        counted: Counts = self.histograms @ np.arange(1, self.histograms.shape[1] + 1)
        return counted

    @property
    def length(self) -> float:
        """The acceptance length: a ratio of sums, all tokens by all verifies. This is the one that is compared."""
        return float(self.tokens.sum() / self.verifies.sum())

    @property
    def per_request(self) -> float:
        """The mean over prompts of each one's length: another number (Jensen), told beside the first."""
        return float(self.lengths.mean())

    @property
    def lengths(self) -> Floats:
        """The acceptance length of each prompt, (prompts,)."""
        return self.tokens / self.verifies

    @property
    def hazards(self) -> Floats:
        """Of the verifies that reached position j, the part that accepted its draft, (draft tokens - 1,)."""
        return hazards(self.histograms.sum(axis=0))


def hazards(histogram: Counts) -> Floats:
    """Accepted by reached at each position; over the last axis of `histogram`. NaN where nothing reached."""
    got = reached(histogram)
    with np.errstate(invalid="ignore"):
        part: Floats = got[..., 1:] / got[..., :-1]
    return part


def reached(histogram: Counts) -> Counts:
    """How many verifies accepted at least j drafts, for j from 0 on; over the last axis of `histogram`."""
    counted: Counts = np.flip(np.flip(histogram, -1).cumsum(-1), -1)
    return counted


def of_replies(replies: Mapping[int, Reply], numbers: Sequence[int], draft_tokens: int) -> Accepted:
    """The free run of the prompts with these numbers."""
    rows = np.zeros((len(numbers), draft_tokens), dtype=np.int64)
    for row, number in enumerate(numbers):
        histogram = replies[number].histogram
        rows[row, : len(histogram)] = histogram
    return Accepted(rows)


def of_steps(steps: Iterable[Step], numbers: Sequence[int], draft_tokens: int) -> Accepted:
    """Replayed steps of the prompts with these numbers."""
    place = {number: row for row, number in enumerate(numbers)}
    rows = np.zeros((len(numbers), draft_tokens), dtype=np.int64)
    for step in steps:
        rows[place[step.number], step.correct] += 1
    return Accepted(rows)
