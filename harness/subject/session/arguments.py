"""The server arguments and the environment of a session's server."""

import os
from typing import Any

from harness.models.store import draft, folder
from harness.scenario.axes import AXES
from harness.scenario.session import SessionScenario, Visit

#: What every server has; sglang derives what is named neither here nor by an axis.
FIXED: dict[str, Any] = {
    "device": "npu",
    "attention_backend": "ascend",
    "dtype": "float32",
    "mem_fraction_static": 0.5,
    "sampling_backend": "pytorch",
    "skip_tokenizer_init": True,
    "random_seed": 1,
    "log_level": "error",
}
#: Algorithms with a draft that decodes step by step: one branch a step, and a block that is one longer.
STEPPING = ("EAGLE", "EAGLE3", "STANDALONE")
#: Graphs are captured for batches of these sizes: one request is padded to two, three to four, and five run eagerly.
BUCKETS = (2, 4)


def server_arguments(scenario: SessionScenario) -> dict[str, Any]:
    """Keyword arguments for `ServerArgs`: of every axis the value of the scenario, or else its first."""
    axes = [axis for axis in AXES if axis.kind == "option" and axis.applies(scenario.algorithm, scenario.target)]
    arguments = FIXED | {axis.name: axis.values[0] for axis in axes if axis.values[0] is not None}
    arguments |= dict(scenario.options) | {"model_path": str(folder(scenario.target) / "target")}
    if scenario.executor == "graph":
        arguments["cuda_graph_bs_decode"] = list(BUCKETS)
    else:
        arguments["disable_cuda_graph"] = True
    if scenario.algorithm != "NONE":
        arguments["speculative_algorithm"] = scenario.algorithm
        arguments["speculative_draft_model_path"] = str(draft(scenario.target, scenario.draft or scenario.algorithm))
    if scenario.algorithm in STEPPING:
        arguments["speculative_eagle_topk"] = 1
        arguments["speculative_num_draft_tokens"] = arguments["speculative_num_steps"] + 1
    return arguments


def sampling(visit: Visit) -> dict[str, Any]:
    """How a visit asks for tokens, as keyword arguments for `SamplingParams`."""
    return {"temperature": visit.temperature / 100, "max_new_tokens": visit.new_tokens, "ignore_eos": True}


def set_environment(scenario: SessionScenario) -> None:
    """Set the switches of the scenario, for this process and those that it starts."""
    os.environ.update(scenario.environment)
