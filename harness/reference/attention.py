"""Dense attention in float64, written from docs/contract.md: what each query row may see, and the softmax over it."""

import numpy as np
import numpy.typing as npt

from harness.reference.metadata import kv_length, query_tokens
from harness.scenario.content import (
    HEAD_SIZE,
    absorbed,
    keys,
    latents,
    projections,
    queries,
    ropes,
    slots,
    softmax_scale,
    values,
)
from harness.scenario.metadata import MetadataScenario, Request

Exact = npt.NDArray[np.float64]


def outputs(scenario: MetadataScenario, batch: tuple[Request, ...]) -> Exact:
    """Attention of one round: float64 of shape (query rows, query heads, dimension), requests one after the other.

    The dimension is 128, and 512 where MLA attends to latents.
    """
    counts = [query_tokens(scenario, request) for request in batch]
    rows = queries(scenario, sum(counts)).astype(np.float64)
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return np.concatenate([_of_request(scenario, request, part) for request, part in zip(batch, parts, strict=True)])


def _of_request(scenario: MetadataScenario, request: Request, rows: Exact) -> Exact:
    """One request: query `j` sees what came before it and itself, or the whole block where the block is a draft."""
    length = kv_length(scenario, request)
    key, value = _keys_and_values(scenario, slots(scenario, request.row, range(length)))
    scores = np.einsum("qhd,khd->hqk", rows, key, optimize=True) * softmax_scale(scenario)
    if scenario.mode != "draft_block":
        last_seen = length - len(rows) + np.arange(len(rows))
        scores[:, np.arange(length)[np.newaxis, :] > last_seen[:, np.newaxis]] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
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
