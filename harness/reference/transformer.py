"""What a target model generates greedily: a decoder in float64, one token after the other.

Written from the models' descriptions (RMS norm before attention and MLP, SwiGLU; what their attention is say
`heads` and `latent`), with nothing of sglang, of transformers or of torch.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from harness.reference.attending import Attending
from harness.reference.checkpoint import Checkpoint, Values
from harness.reference.heads import Heads
from harness.reference.latent import Latent

#: The kinds of attention by the models' `model_type`.
ATTENTION: dict[str, Callable[[Checkpoint], Attending]] = {"qwen3": Heads, "laguna": Heads, "deepseek_v2": Latent}


class Greedy(NamedTuple):
    """Generated tokens, and by how much the logit of each was above that of the next best."""

    tokens: tuple[int, ...]
    gaps: tuple[float, ...]


class Transformer:
    """The model saved in `folder` as config.json and model.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = Checkpoint(folder)
        self.attention = ATTENTION[self.checkpoint.config["model_type"]](self.checkpoint)

    def greedy(self, prompt: tuple[int, ...], count: int) -> Greedy:
        """The `count` tokens that follow `prompt`; of equal logits the first token wins."""
        return _best(np.array(list(self.logits(prompt, count))))

    def forced(self, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Greedy:
        """What the model would have generated in the place of each of `tokens`, which it is made to follow."""
        cache = [self.attention.nothing] * int(self.checkpoint.config["num_hidden_layers"])
        hidden = self._hidden([*prompt, *tokens[:-1]], cache)
        return _best(self._logits(hidden[len(prompt) - 1 :]))

    def logits(self, prompt: tuple[int, ...], count: int) -> Iterator[Values]:
        """The logits of each of the `count` tokens that follow `prompt`, of shape (vocabulary,)."""
        cache = [self.attention.nothing] * int(self.checkpoint.config["num_hidden_layers"])
        following = list(prompt)
        for _ in range(count):
            (logits,) = self._logits(self._hidden(following, cache)[-1:])
            yield logits
            following = [int(np.argmax(logits))]

    def _hidden(self, tokens: list[int], cache: list[tuple[Values, Values]]) -> Values:
        """The last layer's output for each of `tokens`, whose keys and values are added to `cache`."""
        model = self.checkpoint
        hidden = model.weights["model.embed_tokens.weight"][tokens]
        for layer in range(len(cache)):
            name = f"model.layers.{layer}."
            normed = model.norm(hidden, f"{name}input_layernorm")
            attended, cache[layer] = self.attention.attend(layer, normed, cache[layer])
            hidden = hidden + attended
            normed = model.norm(hidden, f"{name}post_attention_layernorm")
            gate = model.project(normed, f"{name}mlp.gate_proj")
            up = model.project(normed, f"{name}mlp.up_proj")
            hidden = hidden + model.project(gate / (1 + np.exp(-gate)) * up, f"{name}mlp.down_proj")
        return hidden

    def _logits(self, hidden: Values) -> Values:
        """The logits behind each row of `hidden`, of shape (rows, vocabulary)."""
        model = self.checkpoint
        head = "model.embed_tokens" if model.config["tie_word_embeddings"] else "lm_head"
        return model.project(model.norm(hidden, "model.norm"), head)


def _best(logits: Values) -> Greedy:
    """The best token of each row, and its lead over the next best."""
    second, first = np.partition(logits, -2, axis=-1)[:, -2:].T
    return Greedy(tuple(logits.argmax(axis=-1).tolist()), tuple((first - second).tolist()))


@lru_cache(maxsize=4)
def _model(folder: Path) -> Transformer:
    return Transformer(folder)


@lru_cache(maxsize=4096)
def greedy(folder: Path, prompt: tuple[int, ...], count: int) -> Greedy:
    """What the model in `folder` generates after `prompt`."""
    return _model(folder).greedy(prompt, count)


@lru_cache(maxsize=4096)
def forced(folder: Path, prompt: tuple[int, ...], tokens: tuple[int, ...]) -> Greedy:
    """What the model in `folder` would have generated in the place of each of `tokens`, which follow `prompt`."""
    return _model(folder).forced(prompt, tokens)
