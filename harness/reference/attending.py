"""What every kind of attention of a decoder has in common."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from harness.reference.checkpoint import Values

#: What a layer keeps of the positions before: one row for each in both.
Kept = tuple[Values, Values]


class Attending(Protocol):
    """The attention of all layers of one model."""

    #: What is kept before the first position.
    nothing: Kept

    def attend(self, layer: int, hidden: Values, kept: Kept) -> tuple[Values, Kept]:
        """The attention's output (token, dimension) for normed hidden states, and what is kept with them."""


def mix(queries: Values, keys: Values, values: Values, scale: float, window: int | None = None) -> Values:
    """Causal attention (query, head, dimension): the queries are those of the last positions.

    With a `window`, a query sees so many positions, its own among them.
    """
    positions = np.arange(len(keys))
    own = positions[len(keys) - len(queries) :, np.newaxis]
    hidden = positions > own if window is None else (positions > own) | (positions <= own - window)
    scores = np.einsum("qhd,khd->hqk", queries, keys) * scale
    scores[:, hidden] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mixed: Values = np.einsum("hqk,khd->qhd", weights, values)
    return mixed


def frequencies(theta: float, size: int) -> Values:
    """How fast the `size` / 2 pairs of dimensions turn from one position to the next."""
    turning: Values = theta ** -(np.arange(0, size, 2) / size)
    return turning


def turned(first: Values, second: Values, positions: npt.NDArray[np.int64], turning: Values) -> tuple[Values, Values]:
    """Pairs of dimensions (token, head, pair), rotated by their position."""
    angles = positions[:, np.newaxis] * turning
    cosine, sine = np.cos(angles)[:, np.newaxis], np.sin(angles)[:, np.newaxis]
    return first * cosine - second * sine, second * cosine + first * sine
