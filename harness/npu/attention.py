"""Softmax attention of one group of queries over the keys and values gathered for it."""

import torch


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    visible: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attention of queries (query, head, dimension) over keys (position, head, dimension), in the queries' type.

    `visible` tells which positions each query sees, all of them where it is None. `sink` is one more score per
    query head, for which there is no value.
    """
    return attend_with_sums(query, key, value, scale, visible, sink)[0]


def attend_with_sums(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scale: float,
    visible: torch.Tensor | None = None,
    sink: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `attend`, and the logarithm of the sum of each softmax: (query, head), in float32 or better."""
    # Assumption: the device's own precision inside the operator need not be emulated. On a device: the noise floor
    # there.
    precise = torch.float64 if query.dtype == torch.float64 else torch.float32
    queries, heads, dimension = query.shape
    positions, kv_heads, _ = key.shape
    together = (kv_heads, heads // kv_heads * queries)  # query heads that share a KV head are neighbours
    by_head = query.to(precise).transpose(0, 1).reshape(*together, dimension)
    scores = (by_head @ key.to(precise).permute(1, 2, 0) * scale).view(heads, queries, positions)
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    if sink is not None:
        scores = torch.cat([scores, sink.to(precise).view(-1, 1, 1).expand(-1, queries, 1)], dim=-1)
    # Assumption: the sum over no position is minus infinity.
    sums = scores.logsumexp(-1).transpose(0, 1)
    weights = scores.softmax(-1)
    if visible is not None:
        # Assumption: a query that sees no position yields zeros. Source: torch_npu 2.14.0 documents zeros where there
        # are no keys, and for a row that is hidden whole that precision may be lost. On a device: more queries than
        # positions.
        weights = weights.masked_fill(~visible.any(-1, keepdim=True), 0.0)
    attended = weights[..., :positions].reshape(*together, positions) @ value.to(precise).transpose(0, 1)
    output: torch.Tensor = attended.view(heads, queries, value.shape[2]).transpose(0, 1).to(query.dtype)
    return output, sums


def visible_in_band(
    queries: int, positions: int, offset: int, after: int = 0, before: int | None = None
) -> torch.Tensor:
    """Query `j` sees the positions from `j + offset - before`, if given, to `j + offset + after`."""
    diagonal = torch.arange(queries).unsqueeze(1) + offset
    position = torch.arange(positions).unsqueeze(0)
    visible = position <= diagonal + after
    return visible if before is None else visible & (position >= diagonal - before)
