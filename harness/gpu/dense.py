"""Dense attention of one request in float32, and what each query sees of its keys."""

from typing import NamedTuple

import torch


class Sight(NamedTuple):
    """What a query sees: `left` keys before its own position and `right` after it, -1 for all of them."""

    left: int
    right: int

    def mask(self, queries: int, keys: int) -> torch.Tensor:
        """Whether each query sees each key: bool (queries, keys), the last query at the last key."""
        own = torch.arange(queries)[:, None] + keys - queries
        position = torch.arange(keys)[None, :]
        seen = torch.ones(queries, keys, dtype=torch.bool)
        if self.left >= 0:
            seen &= position >= own - self.left
        if self.right >= 0:
            seen &= position <= own + self.right
        return seen


def attend(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor,
    sinks: torch.Tensor | None = None,
    soft_cap: float = 0.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output (rows, heads, size) and the natural logarithm of its weights' sum (rows, heads), both float32.

    Scaled `queries` are (rows, heads, size), `keys` and `values` (length, KV heads, size), all float32; `seen` is bool
    (rows, length), `sinks` (heads,); with `soft_cap` scores go through its tanh. A row that sees nothing is zero, and
    the logarithm of its sum is -inf where there are no sinks.
    """
    rows, heads, size = queries.shape
    kv_heads = keys.shape[1]
    grouped = queries.view(rows, kv_heads, heads // kv_heads, size)
    scores = torch.einsum("qhgd,khd->qhgk", grouped, keys)
    if soft_cap:
        scores = soft_cap * torch.tanh(scores / soft_cap)
    scores = scores.masked_fill(~seen[:, None, None, :], float("-inf"))
    if sinks is not None:
        sink = sinks.float().view(1, kv_heads, -1, 1).expand(rows, -1, -1, -1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = scores.softmax(dim=-1)[..., : len(keys)]
    weights[~seen.any(dim=-1)] = 0.0  # the softmax of nothing is NaN
    output = torch.einsum("qhgk,khd->qhgd", weights, values).reshape(rows, heads, size)
    return output, scores.logsumexp(dim=-1).reshape(rows, heads)
