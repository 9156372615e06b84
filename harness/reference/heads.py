"""Attention with heads of keys and values: Qwen3, and Laguna with its windows and its gates."""

from typing import Any

import numpy as np
import numpy.typing as npt

from harness.reference.attending import Kept, frequencies, mix, turned
from harness.reference.checkpoint import Checkpoint, Values

_SLIDING = "sliding_attention"


class Heads:
    """Norms of queries and keys per head, rotary positions over halves of a head, grouped KV heads.

    A layer that slides sees `sliding_window` positions; a layer with a gate (`g_proj`) weighs each head by the softplus
    of a projection of its input.
    """

    def __init__(self, model: Checkpoint) -> None:
        self.model = model
        config = model.config
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head_size = int(config["head_dim"])
        self.kinds: list[str] = config.get("layer_types") or []
        self.nothing = (np.zeros((0, self.kv_heads, self.head_size)),) * 2

    def attend(self, layer: int, hidden: Values, kept: Kept) -> tuple[Values, Kept]:
        """See `Attending`; keys and values are kept."""
        name, model = f"model.layers.{layer}.self_attn.", self.model
        positions = np.arange(len(kept[0]), len(kept[0]) + len(hidden))
        queries = model.norm(self._heads(hidden, f"{name}q_proj"), f"{name}q_norm")
        new = model.norm(self._heads(hidden, f"{name}k_proj"), f"{name}k_norm")
        turning = frequencies(self._theta(layer), self.head_size)
        keys = np.concatenate([kept[0], _rotated(new, positions, turning)])
        values = np.concatenate([kept[1], self._heads(hidden, f"{name}v_proj")])
        groups = self.heads // self.kv_heads
        window = int(model.config["sliding_window"]) if self._kind(layer) == _SLIDING else None
        queries = _rotated(queries, positions, turning)
        every = np.repeat(keys, groups, axis=1), np.repeat(values, groups, axis=1)
        mixed = mix(queries, *every, scale=self.head_size**-0.5, window=window)
        if f"{name}g_proj.weight" in model.weights:
            mixed = mixed * np.logaddexp(0, model.project(hidden, f"{name}g_proj"))[:, :, np.newaxis]
        return model.project(mixed.reshape(len(hidden), -1), f"{name}o_proj"), (keys, values)

    def _heads(self, hidden: Values, name: str) -> Values:
        return self.model.project(hidden, name).reshape(len(hidden), -1, self.head_size)

    def _kind(self, layer: int) -> str:
        return self.kinds[layer] if self.kinds else "full_attention"

    def _theta(self, layer: int) -> float:
        """The base of the rotary positions, which a configuration has as a whole or by kind of layer."""
        config = self.model.config
        parameters: dict[str, Any] = config.get("rope_parameters") or {}
        return float(parameters.get(self._kind(layer), parameters).get("rope_theta") or config["rope_theta"])


def _rotated(heads: Values, positions: npt.NDArray[np.int64], turning: Values) -> Values:
    first, second = np.split(heads, 2, axis=-1)
    return np.concatenate(turned(first, second, positions, turning), axis=-1)
