"""A tiny random target model and a DFlash draft for it, made anew from a seed: `python -m tests.engine.tiny_pair DIR`.

The target is a transformers model, so that transformers can say what it generates. The draft has the weights that
sglang's `DFlashDraftModel` loads. Heads are as wide as the device's attention operators ask for.
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
_SEED = 0
_SPREAD = 0.08


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
    """Save a target with random weights."""
    torch.manual_seed(_SEED)
    model = Qwen3ForCausalLM(config())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name:
                weight.normal_(0.0, 1.0 if name.startswith(("model.embed", "lm_head")) else _SPREAD)
    model.save_pretrained(folder)


def write_draft(folder: Path) -> None:
    """Save a draft with random weights, which reads the hidden states of two of the target's layers."""
    torch.manual_seed(_SEED + 1)
    read = [1, 2]
    settings = config(num_hidden_layers=DRAFT_LAYERS).to_dict() | {
        "architectures": ["DFlashDraftModel"],
        "block_size": BLOCK,
        "num_target_layers": LAYERS,
        "dflash_config": {"mask_token_id": VOCABULARY - 12, "target_layer_ids": read},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    weights = {"fc.weight": _random(HIDDEN, len(read) * HIDDEN), "hidden_norm.weight": torch.ones(HIDDEN)}
    for layer in range(DRAFT_LAYERS):
        weights |= {f"layers.{layer}.{name}": weight for name, weight in _layer().items()}
    weights["norm.weight"] = torch.ones(HIDDEN)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _layer() -> dict[str, torch.Tensor]:
    return {
        "self_attn.q_proj.weight": _random(HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.k_proj.weight": _random(KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.v_proj.weight": _random(KV_HEADS * HEAD_SIZE, HIDDEN),
        "self_attn.o_proj.weight": _random(HIDDEN, HEADS * HEAD_SIZE),
        "self_attn.q_norm.weight": torch.ones(HEAD_SIZE),
        "self_attn.k_norm.weight": torch.ones(HEAD_SIZE),
        "mlp.gate_proj.weight": _random(INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": _random(INTERMEDIATE, HIDDEN),
        "mlp.down_proj.weight": _random(HIDDEN, INTERMEDIATE),
        "input_layernorm.weight": torch.ones(HIDDEN),
        "post_attention_layernorm.weight": torch.ones(HIDDEN),
    }


def _random(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns) * _SPREAD


def write(folder: Path) -> None:
    """Save the pair in `folder`, as `target` and `draft`."""
    write_target(folder / "target")
    write_draft(folder / "draft")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
