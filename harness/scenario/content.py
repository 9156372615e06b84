"""What the KV cache and the queries hold where attention runs: fixed random numbers, the same on every side.

The content of a slot depends on the slot alone, so shared pages hold one content for all their owners.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from harness.scenario.metadata import MetadataScenario, PageMap

HEAD_SIZE = 128
Values = npt.NDArray[np.float32]


def keys(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """Keys of `slots`: float32 of shape (slots, KV heads, 128)."""
    return _content(*_shape(scenario), 1)[slots]


def values(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """Values of `slots`: float32 of shape (slots, KV heads, 128)."""
    return _content(*_shape(scenario), 2)[slots]


def queries(scenario: MetadataScenario, rows: int) -> Values:
    """Query rows of a round: float32 of shape (rows, query heads, 128)."""
    assert scenario.attention is not None
    return _content(rows, scenario.attention.query_heads, 3)


def slots(scenario: MetadataScenario, row: int, positions: range) -> npt.NDArray[np.int64]:
    """KV slots of logical `positions` of the request in `row`."""
    pages = PageMap(scenario)
    return np.array([pages.slot(row, position) for position in positions], dtype=np.int64)


def _shape(scenario: MetadataScenario) -> tuple[int, int]:
    assert scenario.attention is not None
    return (PageMap(scenario).pages + 1) * scenario.pool.page_size, scenario.attention.kv_heads


@lru_cache(maxsize=64)
def _content(count: int, heads: int, stream: int) -> Values:
    return np.random.default_rng((stream, 31739)).standard_normal((count, heads, HEAD_SIZE), dtype=np.float32)
