"""A tiny target model and drafts for it, made anew from a seed: `python -m tests.engine.tiny_pair DIR`.

The target is a random transformers model, so that transformers can say what it generates. Its logits are mostly those
of repeating the last token, and its layers, whose weights are large, often change that. The drafts, with the weights
that sglang's `DFlashDraftModel` and `LlamaForCausalLMEagle` load, mostly propose a repetition; so what they propose is
accepted to different lengths.

Heads are as wide as the device's attention operators ask for.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from harness.npu import vision

vision.activate()  # transformers imports torchvision, which may not load beside this torch

from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from tests.engine.prompts import VOCABULARY  # noqa: E402

HIDDEN, LAYERS, DRAFT_LAYERS = 64, 4, 2
HEADS, KV_HEADS, HEAD_SIZE, INTERMEDIATE = 4, 2, 64, 128
#: Tokens that a draft proposes and the target verifies at once.
BLOCK = 8
MASK = VOCABULARY - 12
_SEED = 0
#: Standard deviation of the target's weights.
_SPREAD = 0.2
#: How far the output embeddings are the input embeddings.
_REPETITION = 0.9
#: A hidden dimension that no layer of the target changes: positive in all tokens but the mask.
_IS_TOKEN = 0
#: A dimension of a head that RoPE turns too slowly to matter here.
_STILL = HEAD_SIZE // 2 - 1


def config(**changes: object) -> Qwen3Config:
    """The configuration of the target; the draft's is the same with `changes`."""
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_SIZE,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        "dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return Qwen3Config(**settings | changes)


def write_target(folder: Path) -> None:
    """Save the target."""
    torch.manual_seed(_SEED)
    model = Qwen3ForCausalLM(config())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(0.0, 1.0 if name.startswith(("model.embed", "lm_head")) else _SPREAD)
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight[_IS_TOKEN] = 0.0
        tokens, logits = model.model.embed_tokens.weight, model.lm_head.weight
        logits.copy_(_REPETITION * tokens + (1 - _REPETITION**2) ** 0.5 * logits)
        logits[:, _IS_TOKEN] = 0.0
        tokens[:, _IS_TOKEN] = 1.0
        tokens[MASK, _IS_TOKEN] = -1.0
    model.save_pretrained(folder)


def write_dflash_draft(folder: Path) -> None:
    """Save the DFlash draft, which reads the hidden states of two of the target's layers."""
    torch.manual_seed(_SEED + 1)
    read = [1, 2]
    settings = config(num_hidden_layers=DRAFT_LAYERS).to_dict() | {
        "architectures": ["DFlashDraftModel"],
        "block_size": BLOCK,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": read},
    }
    features = torch.randn(HIDDEN, len(read) * HIDDEN) * 0.1
    # What comes from the target looks to the draft's first layer like a mask.
    features[_IS_TOKEN] = 0.0
    features[_IS_TOKEN, _IS_TOKEN] = -1.0
    weights = {"fc.weight": features, "hidden_norm.weight": torch.ones(HIDDEN), "norm.weight": torch.ones(HIDDEN)}
    for layer, made in enumerate((_copying_layer(), _random_layer(0.02))):
        weights |= {f"layers.{layer}.{name}": weight for name, weight in made.items()}
    _save(folder, settings, weights)


def _copying_layer() -> dict[str, torch.Tensor]:
    """A layer in which every mask attends to the one token of its block, and becomes much like it."""
    layer = _random_layer(0.0)
    for head in range(HEADS):
        layer["self_attn.q_proj.weight"][head * HEAD_SIZE + _STILL, _IS_TOKEN] = -1.0
    for head in range(KV_HEADS):
        layer["self_attn.k_proj.weight"][head * HEAD_SIZE + _STILL, _IS_TOKEN] = 1.0
    layer["self_attn.v_proj.weight"][:HIDDEN] = torch.eye(HIDDEN)
    layer["self_attn.o_proj.weight"][:, :HIDDEN] = 4 * torch.eye(HIDDEN)
    return layer


def _random_layer(spread: float) -> dict[str, torch.Tensor]:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_SIZE),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    norms = {
        "self_attn.q_norm": HEAD_SIZE,
        "self_attn.k_norm": HEAD_SIZE,
        "input_layernorm": HIDDEN,
        "post_attention_layernorm": HIDDEN,
    }
    layer = {f"{name}.weight": torch.randn(shape) * spread for name, shape in shapes.items()}
    return layer | {f"{name}.weight": torch.ones(size) for name, size in norms.items()}


def write_eagle_draft(folder: Path) -> None:
    """Save the EAGLE draft, which adds little to the embedding of the last token."""
    torch.manual_seed(_SEED + 2)
    settings = config(num_hidden_layers=1).to_dict() | {
        "architectures": ["LlamaForCausalLMEagle"],
        "model_type": "llama",
    }
    layer = {
        name: weight for name, weight in _random_layer(0.1).items() if "q_norm" not in name and "k_norm" not in name
    }
    weights = {f"layers.0.{name}": weight for name, weight in layer.items()}
    weights["fc.weight"] = torch.cat([torch.eye(HIDDEN), torch.randn(HIDDEN, HIDDEN) * 0.02], -1)
    weights["fc.bias"] = torch.zeros(HIDDEN)
    _save(folder, settings, weights)


def _save(folder: Path, settings: dict[str, object], weights: dict[str, torch.Tensor]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write(folder: Path) -> None:
    """Save the models in `folder`: `target`, and the drafts by their algorithms."""
    write_target(folder / "target")
    write_dflash_draft(folder / "DFLASH")
    write_eagle_draft(folder / "EAGLE")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
