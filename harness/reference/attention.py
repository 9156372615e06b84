"""Dense attention in float64, written from docs/contract.md: what each query row may see, and the softmax over it."""

import numpy as np
import numpy.typing as npt

from harness.reference.metadata import kv_length, query_tokens
from harness.scenario.content import HEAD_SIZE, keys, queries, slots, values
from harness.scenario.metadata import MetadataScenario, Request


def outputs(scenario: MetadataScenario, batch: tuple[Request, ...]) -> npt.NDArray[np.float64]:
    """Attention of one round: float64 of shape (query rows, query heads, 128), requests one after the other."""
    counts = [query_tokens(scenario, request) for request in batch]
    rows = queries(scenario, sum(counts)).astype(np.float64)
    parts = np.split(rows, np.cumsum(counts)[:-1])
    return np.concatenate([_of_request(scenario, request, part) for request, part in zip(batch, parts, strict=True)])


def _of_request(scenario: MetadataScenario, request: Request, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """One request: query `j` sees what came before it and itself, or the whole block where the block is a draft."""
    assert scenario.attention is not None
    length = kv_length(scenario, request)
    own = slots(scenario, request.row, range(length))
    group = scenario.attention.query_heads // scenario.attention.kv_heads
    key = np.repeat(keys(scenario, own).astype(np.float64), group, axis=1)
    value = np.repeat(values(scenario, own).astype(np.float64), group, axis=1)
    scores = np.einsum("qhd,khd->hqk", rows, key) / np.sqrt(HEAD_SIZE)
    if scenario.mode != "draft_block":
        last_seen = length - len(rows) + np.arange(len(rows))
        scores[:, np.arange(length)[np.newaxis, :] > last_seen[:, np.newaxis]] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    attended: npt.NDArray[np.float64] = np.einsum("hqk,khd->qhd", weights, value)
    return attended
