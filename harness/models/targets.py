"""Random target models, one for each kind of attention that the trained pair does not have.

Their logits are mostly those of repeating the last token, and their layers, whose weights are large, often change that.
Heads are as wide as the device's attention operators ask for.
"""

from typing import Any

import numpy as np

from harness.models.weights import Draws, Weights, ones

VOCABULARY, HIDDEN, INTERMEDIATE, LAYERS = 512, 64, 128, 4
HEADS, HEAD_SIZE = 4, 64
#: The token that stands for one that a DFlash draft is to guess; no prompt has it.
MASK = 500
#: A hidden dimension that no layer changes: positive in all tokens but the mask.
IS_TOKEN = 0
#: Positions that a window layer sees, its own among them: less than a page, and no multiple of a block.
WINDOW = 60
#: Of MLA, as the operators ask for it, and as all models of this kind have it.
LATENT, ROPE = 512, 64
#: Standard deviation of weights into and out of the hidden states.
_SPREAD = 0.2
#: How far the output embeddings are the input embeddings.
_REPETITION = 0.9
_THETA = 10000.0


def multihead() -> tuple[dict[str, Any], Weights]:
    """Qwen3 with a KV head for each query head: configuration and weights."""
    settings = settings_of("Qwen3ForCausalLM", "qwen3") | {"num_key_value_heads": HEADS, "head_dim": HEAD_SIZE}
    return settings, _weights(Draws(1), HEADS)


def windowed() -> tuple[dict[str, Any], Weights]:
    """Laguna without experts, whose layers see a window and everything in turn."""
    kinds = ["sliding_attention", "full_attention"] * (LAYERS // 2)
    rope = {"rope_type": "default", "rope_theta": _THETA, "partial_rotary_factor": 1.0}
    settings = settings_of("LagunaForCausalLM", "laguna") | {
        "num_key_value_heads": HEADS // 2,
        "head_dim": HEAD_SIZE,
        "sliding_window": WINDOW,
        "layer_types": kinds,
        "mlp_layer_types": ["dense"] * LAYERS,
        "rope_parameters": dict.fromkeys(sorted(set(kinds)), rope),
        "num_experts": 2,
        "num_experts_per_tok": 1,
    }
    draws = Draws(2)
    weights = _weights(draws, HEADS // 2)
    gates = {f"model.layers.{layer}.self_attn.g_proj.weight": (HEADS, HIDDEN) for layer in range(LAYERS)}
    return settings, weights | {name: draws.normal(*shape, spread=_SPREAD) for name, shape in gates.items()}


def latent() -> tuple[dict[str, Any], Weights]:
    """DeepSeek-V2 with MLA and without experts."""
    nope = value = 128
    settings = settings_of("DeepseekV2ForCausalLM", "deepseek_v2") | {
        "num_key_value_heads": HEADS,
        "kv_lora_rank": LATENT,
        "q_lora_rank": None,
        "qk_rope_head_dim": ROPE,
        "qk_nope_head_dim": nope,
        "v_head_dim": value,
        "first_k_dense_replace": LAYERS,
        "moe_layer_freq": 1,
        "n_routed_experts": 2,
        "n_shared_experts": 1,
        "num_experts_per_tok": 1,
        "moe_intermediate_size": INTERMEDIATE,
    }
    shapes = {
        "q_proj": (HEADS * (nope + ROPE), HIDDEN),
        "kv_a_proj_with_mqa": (LATENT + ROPE, HIDDEN),
        "kv_b_proj": (HEADS * (nope + value), LATENT),
        "o_proj": (HIDDEN, HEADS * value),
    }
    draws = Draws(3)
    weights = _embeddings(draws)
    for layer in range(LAYERS):
        weights |= _layer(draws, layer, shapes, {"kv_a_layernorm": LATENT})
        # Its input has a deviation of 1 and is eight times as wide as the hidden states.
        weights[f"model.layers.{layer}.self_attn.kv_b_proj.weight"] *= np.float32((HIDDEN / LATENT) ** 0.5)
    return settings, weights


def settings_of(architecture: str, kind: str) -> dict[str, Any]:
    """What the configurations of all these models have, drafts included."""
    return {
        "architectures": [architecture],
        "model_type": kind,
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "rope_theta": _THETA,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


def _weights(draws: Draws, kv_heads: int) -> Weights:
    """A whole model whose attention has heads of keys and values."""
    shapes = {
        "q_proj": (HEADS * HEAD_SIZE, HIDDEN),
        "k_proj": (kv_heads * HEAD_SIZE, HIDDEN),
        "v_proj": (kv_heads * HEAD_SIZE, HIDDEN),
        "o_proj": (HIDDEN, HEADS * HEAD_SIZE),
    }
    weights = _embeddings(draws)
    for layer in range(LAYERS):
        weights |= _layer(draws, layer, shapes, {"q_norm": HEAD_SIZE, "k_norm": HEAD_SIZE})
    return weights


def _embeddings(draws: Draws) -> Weights:
    tokens = draws.normal(VOCABULARY, HIDDEN, spread=1.0)
    other = draws.normal(VOCABULARY, HIDDEN, spread=1.0)
    logits = np.float32(_REPETITION) * tokens + np.float32((1 - _REPETITION**2) ** 0.5) * other
    logits[:, IS_TOKEN] = 0.0
    tokens[:, IS_TOKEN] = 1.0
    tokens[MASK, IS_TOKEN] = -1.0
    return {"model.embed_tokens.weight": tokens, "lm_head.weight": logits, "model.norm.weight": ones(HIDDEN)}


def _layer(draws: Draws, layer: int, attention: dict[str, tuple[int, int]], norms: dict[str, int]) -> Weights:
    shapes = {f"self_attn.{name}": shape for name, shape in attention.items()} | {
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    weights = {
        f"model.layers.{layer}.{name}.weight": draws.normal(*shape, spread=_SPREAD) for name, shape in shapes.items()
    }
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        weights[f"model.layers.{layer}.{name}.weight"][IS_TOKEN] = 0.0
    sizes = {f"self_attn.{name}": size for name, size in norms.items()}
    sizes |= dict.fromkeys(("input_layernorm", "post_attention_layernorm"), HIDDEN)
    return weights | {f"model.layers.{layer}.{name}.weight": ones(size) for name, size in sizes.items()}
