"""Random drafts, which fit every target of `targets`: what they propose is mostly a repetition of the last token."""

from typing import Any

import numpy as np

from harness.models.targets import HEAD_SIZE, HEADS, HIDDEN, INTERMEDIATE, IS_TOKEN, LAYERS, MASK, settings_of
from harness.models.weights import Draws, Weights, ones

#: Tokens that a DFlash draft proposes and the target verifies at once.
BLOCK = 8
#: The layers of the target whose outputs a DFlash draft reads.
_READ = [1, 2]
_KV_HEADS = HEADS // 2
#: A dimension of a head that rotary positions turn too slowly to matter here.
_STILL = HEAD_SIZE // 2 - 1


def dflash() -> tuple[dict[str, Any], Weights]:
    """A DFlash draft of two layers: configuration and weights."""
    settings = _settings("DFlashDraftModel", "qwen3", layers=2) | {
        "block_size": BLOCK,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": _READ},
    }
    draws = Draws(11)
    features = draws.normal(HIDDEN, len(_READ) * HIDDEN, spread=0.1)
    # What comes from the target looks to the draft's first layer like a mask.
    features[IS_TOKEN] = 0.0
    features[IS_TOKEN, IS_TOKEN] = -1.0
    weights = {"fc.weight": features, "hidden_norm.weight": ones(HIDDEN), "norm.weight": ones(HIDDEN)}
    for number, layer in enumerate((_copying(draws), _random(draws, 0.02))):
        weights |= {f"layers.{number}.{name}": weight for name, weight in layer.items()}
    return settings, weights


def eagle() -> tuple[dict[str, Any], Weights]:
    """An EAGLE draft, which adds little to the embedding of the last token: configuration and weights."""
    settings = _settings("LlamaForCausalLMEagle", "llama", layers=1)
    draws = Draws(12)
    layer = {
        name: weight for name, weight in _random(draws, 0.1).items() if "q_norm" not in name and "k_norm" not in name
    }
    weights = {f"layers.0.{name}": weight for name, weight in layer.items()}
    straight = np.eye(HIDDEN, dtype=np.float32)
    weights["fc.weight"] = np.concatenate([straight, draws.normal(HIDDEN, HIDDEN, spread=0.02)], axis=-1)
    weights["fc.bias"] = np.zeros(HIDDEN, dtype=np.float32)
    return settings, weights


def _settings(architecture: str, kind: str, layers: int) -> dict[str, Any]:
    own = {"num_hidden_layers": layers, "num_key_value_heads": _KV_HEADS, "head_dim": HEAD_SIZE}
    return settings_of(architecture, kind) | own


def _copying(draws: Draws) -> Weights:
    """A layer in which every mask attends to the one token of its block, and becomes much like it."""
    layer = _random(draws, 0.0)
    for head in range(HEADS):
        layer["self_attn.q_proj.weight"][head * HEAD_SIZE + _STILL, IS_TOKEN] = -1.0
    for head in range(_KV_HEADS):
        layer["self_attn.k_proj.weight"][head * HEAD_SIZE + _STILL, IS_TOKEN] = 1.0
    layer["self_attn.v_proj.weight"][:HIDDEN] = np.eye(HIDDEN)
    layer["self_attn.o_proj.weight"][:, :HIDDEN] = 4 * np.eye(HIDDEN)
    return layer


def _random(draws: Draws, spread: float) -> Weights:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.k_proj": (_KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.v_proj": (_KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_SIZE),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    norms = {"self_attn.q_norm": HEAD_SIZE, "self_attn.k_norm": HEAD_SIZE}
    norms |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), HIDDEN)
    layer = {f"{name}.weight": draws.normal(*shape, spread=spread) for name, shape in shapes.items()}
    return layer | {f"{name}.weight": ones(size) for name, size in norms.items()}
