"""Has transformers answer the prompts, without any emulation: `python -m tests.engine.reference PAIR`.

Prints a JSON object as its last line: `tokens` per prompt.
"""

import json
import sys

import torch

from harness.npu import is_installed, vision

vision.activate()  # transformers imports torchvision, which may not load beside this torch

from transformers import AutoModelForCausalLM  # noqa: E402

from tests.engine.prompts import NEW_TOKENS, prompts  # noqa: E402


def greedy(folder: str) -> list[list[int]]:
    """The tokens that the target in `folder` generates after each prompt."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = []
    for prompt in prompts():
        sequence = torch.tensor([prompt])
        with torch.inference_mode():
            for _ in range(NEW_TOKENS):
                following = model(sequence).logits[:, -1].argmax(-1, keepdim=True)
                sequence = torch.cat([sequence, following], dim=1)
        tokens.append(sequence[0, len(prompt) :].tolist())
    return tokens


if __name__ == "__main__":
    if is_installed():
        sys.exit("The reference must run without the emulation: unset HARNESS_NPU_EMULATE.")
    print(json.dumps({"tokens": greedy(f"{sys.argv[1]}/target")}))
