"""Has sglang's engine on the NPU answer the prompts: `harness emulate python -m tests.engine.generate PAIR [--graphs]`.

PAIR is a folder that `tests.engine.tiny_pair` has written. Prints a JSON object as its last line: `tokens` per prompt,
and `steps`, the verifications that each took, where the release tells them.
"""

import argparse
import json
from typing import Any

PAGE = 128
_DRAFTING = {
    "DFLASH": {"speculative_num_draft_tokens": 8},
    "EAGLE": {"speculative_num_steps": 3, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 4},
}


def options(pair: str, graphs: bool, algorithm: str) -> dict[str, Any]:
    """The engine's server arguments."""
    chosen: dict[str, Any] = {
        "model_path": f"{pair}/target",
        "device": "npu",
        "attention_backend": "ascend",
        "dtype": "float32",
        "page_size": PAGE,
        "max_running_requests": 4,
        "max_total_tokens": 4096,
        "context_length": 1024,
        "mem_fraction_static": 0.5,
        "disable_radix_cache": True,
        "sampling_backend": "pytorch",
        "skip_tokenizer_init": True,
        "random_seed": 1,
        "log_level": "error",
    }
    if algorithm != "NONE":
        chosen |= {"speculative_algorithm": algorithm, "speculative_draft_model_path": f"{pair}/{algorithm}"}
        chosen |= _DRAFTING[algorithm]
    return chosen | ({"cuda_graph_max_bs_decode": 4} if graphs else {"disable_cuda_graph": True})


def main() -> None:
    """Start the engine, ask, print, and stop the engine."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pair")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--algorithm", choices=[*_DRAFTING, "NONE"], default="DFLASH")
    given = parser.parse_args()

    import sglang

    from tests.engine.prompts import NEW_TOKENS, prompts

    engine = sglang.Engine(**options(given.pair, given.graphs, given.algorithm))
    greedy = {"temperature": 0, "max_new_tokens": NEW_TOKENS, "ignore_eos": True}
    answers = engine.generate(input_ids=prompts(), sampling_params=greedy)
    # A block may be accepted beyond the end of a request.
    tokens = [answer["output_ids"][:NEW_TOKENS] for answer in answers]
    steps = [answer["meta_info"].get("spec_verify_ct") for answer in answers]
    print(json.dumps({"tokens": tokens, "steps": steps}), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    main()
