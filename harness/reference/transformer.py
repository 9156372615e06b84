"""What a target model generates greedily: a Qwen3 decoder in float64, one token after the other.

Written from the model's description (RMS norm before attention and MLP, norms of queries and keys per head, rotary
positions over halves of a head, grouped KV heads, SwiGLU), with nothing of sglang, of transformers or of torch.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Values = npt.NDArray[np.float64]


class Greedy(NamedTuple):
    """Generated tokens, and by how much the logit of each was above that of the next best."""

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]


class Transformer:
    """The model saved in `folder` as config.json and model.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {
            name: weight.astype(np.float64) for name, weight in load_file(folder / "model.safetensors").items()
        }
        self.heads = int(self.config["num_attention_heads"])
        self.kv_heads = int(self.config["num_key_value_heads"])
        self.head_size = int(self.config["head_dim"])
        self.epsilon = float(self.config["rms_norm_eps"])
        theta = self.config.get("rope_theta") or self.config["rope_parameters"]["rope_theta"]
        self.frequencies = theta ** -(np.arange(0, self.head_size, 2) / self.head_size)

    def greedy(self, prompt: tuple[int, ...], count: int) -> Greedy:
        """The `count` tokens that follow `prompt`; of equal logits the first token wins."""
        layers = int(self.config["num_hidden_layers"])
        cache: list[tuple[Values, Values]] = [(np.zeros((0, self.kv_heads, self.head_size)),) * 2] * layers
        following, tokens, gaps = list(prompt), [], []
        for _ in range(count):
            logits = self._forward(following, cache)
            second, first = np.partition(logits, -2)[-2:]
            following = [int(np.argmax(logits))]
            tokens += following
            gaps.append(float(first - second))
        return Greedy(tuple(tokens), tuple(gaps))

    def _forward(self, tokens: list[int], cache: list[tuple[Values, Values]]) -> Values:
        """Logits after the last of `tokens`, whose keys and values are added to `cache`."""
        hidden = self.weights["model.embed_tokens.weight"][tokens]
        for layer in range(len(cache)):
            name = f"model.layers.{layer}."
            attended, cache[layer] = self._attend(name, self._norm(hidden, f"{name}input_layernorm"), cache[layer])
            hidden = hidden + attended
            normed = self._norm(hidden, f"{name}post_attention_layernorm")
            gate = self._project(normed, f"{name}mlp.gate_proj")
            up = self._project(normed, f"{name}mlp.up_proj")
            hidden = hidden + self._project(gate / (1 + np.exp(-gate)) * up, f"{name}mlp.down_proj")
        last = self._norm(hidden[-1:], "model.norm")[0]
        head = "model.embed_tokens.weight" if self.config["tie_word_embeddings"] else "lm_head.weight"
        logits: Values = self.weights[head] @ last
        return logits

    def _attend(self, name: str, hidden: Values, cached: tuple[Values, Values]) -> tuple[Values, tuple[Values, Values]]:
        count, before = len(hidden), len(cached[0])
        name = f"{name}self_attn."
        queries = self._project(hidden, f"{name}q_proj").reshape(count, self.heads, self.head_size)
        keys = self._project(hidden, f"{name}k_proj").reshape(count, self.kv_heads, self.head_size)
        values = self._project(hidden, f"{name}v_proj").reshape(count, self.kv_heads, self.head_size)
        positions = np.arange(before, before + count)
        queries = self._rotate(self._norm(queries, f"{name}q_norm"), positions)
        keys = np.concatenate([cached[0], self._rotate(self._norm(keys, f"{name}k_norm"), positions)])
        values = np.concatenate([cached[1], values])
        groups = self.heads // self.kv_heads
        scores = np.einsum("qhd,khd->hqk", queries, np.repeat(keys, groups, axis=1)) / np.sqrt(self.head_size)
        scores[:, np.arange(before + count)[np.newaxis, :] > positions[:, np.newaxis]] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, np.repeat(values, groups, axis=1))
        return self._project(mixed.reshape(count, -1), f"{name}o_proj"), (keys, values)

    def _project(self, hidden: Values, name: str) -> Values:
        projected: Values = hidden @ self.weights[f"{name}.weight"].T
        return projected

    def _norm(self, hidden: Values, name: str) -> Values:
        scale = np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + self.epsilon)
        normed: Values = hidden / scale * self.weights[f"{name}.weight"]
        return normed

    def _rotate(self, heads: Values, positions: npt.NDArray[np.int64]) -> Values:
        angles = positions[:, np.newaxis] * self.frequencies
        cosine, sine = np.cos(angles)[:, np.newaxis], np.sin(angles)[:, np.newaxis]
        first, second = np.split(heads, 2, axis=-1)
        return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


@lru_cache(maxsize=4)
def _model(folder: Path) -> Transformer:
    return Transformer(folder)


@lru_cache(maxsize=4096)
def greedy(folder: Path, prompt: tuple[int, ...], count: int) -> Greedy:
    """What the model in `folder` generates after `prompt`."""
    return _model(folder).greedy(prompt, count)
