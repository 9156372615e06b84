"""Random drafts, which fit every target of `targets`: what they propose is mostly a repetition of the last token.

Drafts of DSpark and DFlash2 are DFlash drafts that go on from one proposed token to the next by tables of all tokens.
Names and shapes were read in `models/dspark.py` and `models/dflash.py` of 0.5.16 to 0.5.23.
"""

from typing import Any

import numpy as np

from harness.models.targets import HEAD_SIZE, HEADS, HIDDEN, INTERMEDIATE, IS_TOKEN, LAYERS, MASK, settings_of
from harness.models.weights import Draws, Weights, ones

#: Tokens that a DFlash draft proposes and the target verifies at once.
BLOCK = 8
#: The layers of the target whose outputs a DFlash draft reads.
_READ = [1, 2]
_KV_HEADS = HEADS // 2
#: Dimensions of a token in the tables, and how many tokens DFlash2 weighs for each place of its block.
_RANK, _CANDIDATES = 16, 4
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


def dspark(settings: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """A DFlash draft as a draft of DSpark, whose Markov head adds little to the logits."""
    draws = Draws(13)
    tokens = settings["vocab_size"]
    own = {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": settings["block_size"] - 1,  # which counts the tokens that are proposed
        "markov_rank": _RANK,
        "markov_head_type": "vanilla",
        "enable_confidence_head": False,
    }
    table = {
        "markov_head.markov_w1.weight": draws.normal(tokens, _RANK, spread=0.1),
        "markov_head.markov_w2.weight": draws.normal(tokens, _RANK, spread=0.1),
    }
    return settings | own, weights | table


def dflash2(settings: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """A DFlash draft as a draft of DFlash2, whose selector adds little to the logits of its candidates."""
    draws = Draws(14)
    tokens, hidden = settings["vocab_size"], settings["hidden_size"]
    selector = {"selector_rank": _RANK, "selector_top_k": _CANDIDATES}
    own = {"architectures": ["DFlash2DraftModel"], "dflash_config": settings["dflash_config"] | selector}
    table = {
        "candidate_selector.predecessor_codebook": draws.normal(tokens, _RANK, spread=0.1),
        "candidate_selector.successor_codebook": draws.normal(tokens, _RANK, spread=0.1),
        "candidate_selector.hidden_projection.weight": draws.normal(_RANK, hidden, spread=0.1),
    }
    return settings | own, weights | table


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
