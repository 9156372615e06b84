"""What the KV cache and the queries hold where attention runs: fixed random numbers, the same on every side.

The content of a slot depends on the slot alone, so shared pages hold one content for all their owners. Dimensions of
multi-head latent attention (MLA) are those of DeepSeek-V3, which the operators ask for.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from harness.scenario.metadata import HEAD_SIZE, MetadataScenario, PageMap

#: Of MLA's latents and rope parts, which all heads share.
LATENT_SIZE, ROPE_SIZE = 512, 64
#: Numbers of a row that lie together in the layout NZ.
TILE = 16
Values = npt.NDArray[np.float32]


def keys(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """Keys of `slots`: float32 of shape (slots, KV heads, head size)."""
    assert scenario.attention is not None
    return _of_slots(scenario, 1, scenario.attention.head_size)[slots]


def values(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """Values of `slots`: float32 of shape (slots, KV heads, value size)."""
    assert scenario.attention is not None
    return _of_slots(scenario, 2, scenario.attention.value_size)[slots]


def latents(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """MLA's latents of `slots`: float32 of shape (slots, 1, 512)."""
    return _of_slots(scenario, 4, LATENT_SIZE)[slots]


def ropes(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> Values:
    """MLA's rope parts of `slots`: float32 of shape (slots, 1, 64)."""
    return _of_slots(scenario, 5, ROPE_SIZE)[slots]


def cached(scenario: MetadataScenario, slots: npt.NDArray[np.int64]) -> tuple[Values, Values]:
    """What the two caches of a layer hold at `slots`: keys and values, or latents and rope parts."""
    if scenario.target == "mla":
        return latents(scenario, slots), ropes(scenario, slots)
    return keys(scenario, slots), values(scenario, slots)


def projections(scenario: MetadataScenario) -> Values:
    """MLA's projection of a latent to each head's key and value: float32 of shape (query heads, 128 + 128, 512)."""
    assert scenario.attention is not None
    drawn = _content(scenario.attention.query_heads, 2 * HEAD_SIZE, 6, LATENT_SIZE)
    return drawn / np.float32(np.sqrt(LATENT_SIZE))


def sinks(scenario: MetadataScenario) -> Values:
    """The score of each query head's sink: float32 of shape (query heads,)."""
    assert scenario.attention is not None
    return _content(scenario.attention.query_heads, 1, 7, 1).reshape(-1)


def queries(scenario: MetadataScenario, rows: int) -> Values:
    """Query rows of a round: float32 of shape (rows, query heads, dimension); of MLA the last 64 are the rope part."""
    assert scenario.attention is not None
    return _content(rows, scenario.attention.query_heads, 3, query_size(scenario))


def absorbed(scenario: MetadataScenario) -> bool:
    """Whether queries are projected to latents, rather than latents to keys: MLA does so in all modes but extend."""
    return scenario.target == "mla" and scenario.mode != "extend"


def query_size(scenario: MetadataScenario) -> int:
    """The dimension of a query of one head, MLA's rope part included."""
    assert scenario.attention is not None
    if scenario.target == "mla":
        return (LATENT_SIZE if absorbed(scenario) else HEAD_SIZE) + ROPE_SIZE
    return scenario.attention.head_size


def output_size(scenario: MetadataScenario) -> int:
    """The dimension of an output of one head."""
    assert scenario.attention is not None
    return LATENT_SIZE if absorbed(scenario) else scenario.attention.value_size


def softmax_scale(scenario: MetadataScenario) -> float:
    """What scores are multiplied with: from the dimension of a head before any projection to latents."""
    assert scenario.attention is not None
    size = HEAD_SIZE + ROPE_SIZE if scenario.target == "mla" else scenario.attention.head_size
    return float(size**-0.5)


def slots(scenario: MetadataScenario, row: int, positions: range) -> npt.NDArray[np.int64]:
    """KV slots of logical `positions` of the request in `row`."""
    pages = PageMap(scenario)
    return np.array([pages.slot(row, position) for position in positions], dtype=np.int64)


def _of_slots(scenario: MetadataScenario, stream: int, size: int) -> Values:
    assert scenario.attention is not None
    count = (PageMap(scenario).pages + 1) * scenario.pool.page_size
    return _content(count, scenario.attention.kv_heads, stream, size)


@lru_cache(maxsize=64)
def _content(count: int, heads: int, stream: int, size: int) -> Values:
    return np.random.default_rng((stream, 31739)).standard_normal((count, heads, size), dtype=np.float32)
