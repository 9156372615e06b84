"""Dense attention in float64, written from docs/contract.md: what each query row may see, and the softmax over it."""

import numpy as np
import numpy.typing as npt

from harness.reference.metadata import kv_length, query_tokens
from harness.scenario.content import (
    absorbed,
    keys,
    latents,
    projections,
    queries,
    ropes,
    sinks,
    slots,
    softmax_scale,
    values,
)
from harness.scenario.metadata import HEAD_SIZE, MetadataScenario, Request

Exact = npt.NDArray[np.float64]


def outputs(scenario: MetadataScenario, batch: tuple[Request, ...]) -> Exact:
    """Attention of one round: float64 of shape (query rows, query heads, dimension), requests one after the other.

    The dimension is that of values, and 512 where MLA attends to latents. With a sliding window there are twice the
    heads: those of the full-attention layer, then those of the window layer.
    """
    counts = [query_tokens(scenario, request) for request in batch]
    rows = queries(scenario, sum(counts)).astype(np.float64)
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return np.concatenate([_of_request(scenario, request, part) for request, part in zip(batch, parts, strict=True)])


def _of_request(scenario: MetadataScenario, request: Request, rows: Exact) -> Exact:
    """One request: query `j` sees what came before it and itself, or the whole block where the block is a draft.

    In a window layer it sees the last `window` positions up to its own, in a draft block too (contract.md).
    """
    length = kv_length(scenario, request)
    key, value = _keys_and_values(scenario, slots(scenario, request.row, range(length)))
    scores = np.einsum("qhd,khd->hqk", rows, key, optimize=True) * softmax_scale(scenario)
    position = np.arange(length)[np.newaxis, :]
    own = length - len(rows) + np.arange(len(rows))[:, np.newaxis]
    visible = [position <= own if scenario.mode != "draft_block" else position < length]
    if scenario.target == "swa":
        visible.append((position <= own) & (position > own - scenario.window))
    return np.concatenate([_softmax(scenario, scores, seen, value) for seen in visible], axis=1)


def _softmax(scenario: MetadataScenario, scores: Exact, seen: npt.NDArray[np.bool_], value: Exact) -> Exact:
    """The values of what is seen, weighted: (query, head, dimension); a sink takes its share of the weight."""
    assert scenario.attention is not None
    masked = np.where(seen, scores, -np.inf)
    sink = np.full((len(scores), 1, 1), -np.inf)
    if scenario.attention.sinks:
        sink[:, 0, 0] = sinks(scenario)
    largest = np.maximum(masked.max(axis=-1, keepdims=True), sink)
    weights = np.exp(masked - largest)
    weights /= weights.sum(axis=-1, keepdims=True) + np.exp(sink - largest)
    attended: Exact = np.einsum("hqk,khd->qhd", weights, value, optimize=True)
    return attended


def _keys_and_values(scenario: MetadataScenario, own: npt.NDArray[np.int64]) -> tuple[Exact, Exact]:
    """Keys and values of the positions in slots `own`, of every query head: (position, head, dimension)."""
    assert scenario.attention is not None
    heads = scenario.attention.query_heads
    if scenario.target != "mla":
        group = heads // scenario.attention.kv_heads
        key, value = keys(scenario, own).astype(np.float64), values(scenario, own).astype(np.float64)
        return np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
    latent = np.repeat(latents(scenario, own).astype(np.float64), heads, axis=1)
    rope = np.repeat(ropes(scenario, own).astype(np.float64), heads, axis=1)
    if absorbed(scenario):
        return np.concatenate([latent, rope], axis=-1), latent
    projected = np.einsum("khl,hdl->khd", latent, projections(scenario).astype(np.float64), optimize=True)
    return np.concatenate([projected[..., :HEAD_SIZE], rope], axis=-1), projected[..., HEAD_SIZE:]
