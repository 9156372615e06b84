"""What stands in for the model runner: the attributes that the code under test reads, and nothing else.

An attribute that a new release reads and that is missing here is a gap of the driver, never a finding.
"""

from typing import Any

from harness.scenario import metadata
from harness.scenario.metadata import MetadataScenario
from harness.subject.ascend import linear, releases
from harness.subject.ascend.pools import DTYPE, HEAD_SIZE, HEADS, Pools, latent_sizes
from harness.subject.blame import StandIn

DEVICE = "npu"


def server_args(scenario: MetadataScenario) -> Any:
    """Publish server arguments as the algorithm has them; they are read when a backend is built."""
    wrapped = linear.server_arguments(scenario) if scenario.target == "gdn" else {}
    return releases.publish_server_args({**common_arguments(scenario, DEVICE), **wrapped})


def common_arguments(scenario: MetadataScenario, device: str) -> dict[str, Any]:
    """What the backends of every device read of the server arguments.

    A DSpark draft block is one shorter than `speculative_num_draft_tokens`.
    """
    speculative = scenario.algorithm != "NONE"
    block = scenario.draft_tokens + (1 if (scenario.algorithm, scenario.mode) == ("DSPARK", "draft_block") else 0)
    return {
        "device": device,
        "page_size": scenario.pool.page_size,
        "speculative_algorithm": scenario.algorithm if speculative else None,
        "speculative_num_draft_tokens": block if speculative else None,
        "dllm_algorithm": None,
    }


def model_runner(scenario: MetadataScenario, pools: Pools, arguments: Any, spec_algorithm: Any) -> StandIn:
    """A `ModelRunner` for backend and graph runner (attributes read in 0.5.15 to 0.5.23)."""
    return StandIn(
        **(linear.runner_attributes() if scenario.target == "gdn" else {}),
        device=DEVICE,
        page_size=scenario.pool.page_size,
        model_config=_model_config(scenario),
        is_draft_worker=scenario.mode in ("draft_block", "draft_decode", "draft_extend"),
        dtype=DTYPE,
        kv_cache_dtype=DTYPE,
        req_to_token_pool=pools.req_to_token_pool,
        token_to_kv_pool=pools.kv_pool,
        token_to_kv_pool_allocator=pools.allocator,
        is_hybrid_swa=pools.hybrid,
        sliding_window_size=scenario.window or None,
        use_mla_backend=scenario.target == "mla",
        server_args=arguments,
        spec_algorithm=spec_algorithm,
        ps=StandIn(attn_cp_size=1, attn_tp_size=1),
        attn_cp_size=1,
        attn_tp_size=1,
        tp_size=1,
        tp_group=releases.ALONE,
    )


def _model_config(scenario: MetadataScenario) -> StandIn:
    from sglang.srt.configs.model_config import AttentionArch

    rank, rope = latent_sizes(scenario)
    config = linear.configuration() if scenario.target == "gdn" else StandIn(architectures=[_architecture(scenario)])
    return StandIn(
        dtype=DTYPE,
        attention_arch=AttentionArch.MLA if scenario.target == "mla" else AttentionArch.MHA,
        context_len=scenario.pool.context_length,
        hf_config=config,
        hf_text_config=config,
        num_attention_heads=scenario.attention.query_heads if scenario.attention is not None else HEADS,
        use_alibi=False,
        kv_lora_rank=rank,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=HEAD_SIZE if scenario.attention is None else metadata.HEAD_SIZE,
    )


def _architecture(scenario: MetadataScenario) -> str:
    """A model of the scenario's kind: the graph runner updates host lengths by the architecture's name."""
    if scenario.target != "swa":
        return "Qwen3ForCausalLM"
    sinks = scenario.attention is not None and scenario.attention.sinks
    return "GptOssForCausalLM" if sinks else "Step3p5ForCausalLM"
