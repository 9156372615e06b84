"""Hybrid linear attention: the configuration of a small Qwen3-Next, its pools, and the release's own wrapper.

Full-attention layers stay with `AscendAttnBackend`; the linear ones (Gated DeltaNet) have a backend of their own, and
`attn_backend_wrapper` of the release puts `AscendHybridLinearAttnBackend` around both, as `ModelRunner` has it do.
Drafts of such targets have full attention alone and are not wrapped (`DraftBackendFactory`, read in 0.5.15 to 0.5.23).
"""

from functools import cache
from typing import Any

import torch

from harness.scenario.metadata import MetadataScenario
from harness.subject.ascend import releases

#: Layers of the model: every second one has full attention, as far as metadata cares.
LAYERS, FULL_ATTENTION_INTERVAL = 2, 2


@cache
def configuration() -> Any:
    """A `Qwen3NextConfig` whose linear layers have states as small as they can be."""
    from sglang.srt.configs.qwen3_next import Qwen3NextConfig

    return Qwen3NextConfig(
        architectures=["Qwen3NextForCausalLM"],
        num_hidden_layers=LAYERS,
        full_attention_interval=FULL_ATTENTION_INTERVAL,
        linear_num_key_heads=1,
        linear_num_value_heads=1,
        linear_key_head_dim=2,
        linear_value_head_dim=2,
        linear_conv_kernel_dim=4,
    )


def server_arguments(scenario: MetadataScenario) -> dict[str, Any]:
    """What the wrapper asks of the server's arguments: their defaults, and what sglang sets on an NPU."""
    return {
        "attention_backend": "ascend",
        "linear_attn_backend": "triton",
        "linear_attn_decode_backend": None,
        "linear_attn_prefill_backend": None,
        "enable_unified_memory": False,
        "speculative_eagle_topk": None if scenario.algorithm == "NONE" else 1,
    }


def runner_attributes() -> dict[str, Any]:
    """What the wrapper asks of the model runner: up to 0.5.15 the kind of model, later the backends by name."""
    return {
        "mambaish_config": configuration(),
        "hybrid_gdn_config": configuration(),
        "prefill_attention_backend_str": "ascend",
        "decode_attention_backend_str": "ascend",
    }


def request_pool(scenario: MetadataScenario, device: str) -> Any:
    """The real `HybridReqToTokenPool`, each row with the state slot that `scenario` says."""
    from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool

    rows = scenario.pool.rows
    states = configuration().mamba2_cache_params
    pool = releases.call(
        HybridReqToTokenPool,
        size=rows,
        mamba_size=rows,
        mamba_spec_state_size=rows,
        max_context_len=releases.row_columns(scenario),
        device=device,
        enable_memory_saver=False,
        cache_params=states,
        mamba_layer_ids=states.layers,
        enable_mamba_extra_buffer=False,
        speculative_num_draft_tokens=None if scenario.algorithm == "NONE" else scenario.draft_tokens,
        speculative_eagle_topk=None if scenario.algorithm == "NONE" else 1,
    )
    held = [0, *(scenario.state_slot(row) for row in range(1, rows + 1))]
    pool.req_index_to_mamba_index_mapping.copy_(torch.tensor(held, dtype=torch.int32))
    return pool


def kv_pool(request_pool: Any, **arguments: Any) -> Any:
    """The real `HybridLinearKVPool`: KV of the full-attention layers, beside the states in `request_pool`."""
    from sglang.srt.hardware_backend.npu.memory_pool_npu import NPUMHATokenToKVPool
    from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool

    return HybridLinearKVPool(
        full_attention_layer_ids=configuration().full_attention_layer_ids,
        mamba_pool=request_pool.mamba_pool,
        full_kv_pool_class=NPUMHATokenToKVPool,
        **arguments,
    )


def told(scenario: MetadataScenario, backend: Any) -> dict[str, torch.Tensor]:
    """What the linear operators are told, under sglang's own names: state slots, query rows, and a verify's steps.

    A replayed verify takes the steps from the metadata, an eager one from the backend
    (`fused_recurrent_gated_delta_rule_update`, 0.5.15 to 0.5.23).
    """
    metadata = backend.linear_attn_backend.forward_metadata
    fields = {name: getattr(metadata, name) for name in ("mamba_cache_indices", "query_start_loc")}
    if scenario.mode == "target_verify":
        replayed = scenario.executor == "graph"
        steps = metadata.mamba_cache_indices_gdn if replayed else backend.linear_attn_backend.ssm_state_indices
        fields["ssm_state_indices"] = steps
    return fields


def wrapped(model_runner: Any, full_attention: Any) -> Any:
    """`full_attention` and a new linear backend in the release's own wrapper."""
    from sglang.srt.layers.attention.attention_registry import attn_backend_wrapper

    return attn_backend_wrapper(model_runner, full_attention)


def unwrapped(backend: Any) -> Any:
    """The backend of the full-attention layers."""
    return backend.full_attn_backend
