"""What stands in for the model runner: the attributes that the backends of a GPU read, and nothing else.

An attribute that a new release reads and that is missing here is a gap of the driver, never a finding.
"""

from typing import Any

from harness.scenario.metadata import HEAD_SIZE, MetadataScenario
from harness.scenario.validity import MAX_REQUESTS
from harness.subject.ascend import releases
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.stand_in import common_arguments
from harness.subject.blame import StandIn

#: sglang's own default (`--triton-attention-num-kv-splits`, 0.5.15 to 0.5.23).
KV_SPLITS = 8


def server_args(scenario: MetadataScenario, device: str, backend: str) -> Any:
    """Publish server arguments as algorithm and `backend` have them; they are read when a backend is built."""
    speculative = scenario.algorithm != "NONE"
    return releases.publish_server_args(
        {
            **common_arguments(scenario, device),
            "speculative_num_steps": scenario.draft_tokens - 1 if speculative else None,
            "speculative_eagle_topk": 1 if speculative else None,
            "speculative_draft_window_size": None,
            "triton_attention_num_kv_splits": KV_SPLITS,
            "triton_attention_split_tile_size": None,
            "enable_deterministic_inference": False,
            "chunked_prefill_size": -1,
            "cuda_graph_config": None,
            "disable_cuda_graph": scenario.executor == "eager",
            "kv_cache_dtype": "auto",
            "is_embedding": False,
            "disable_radix_cache": False,
            "enable_dp_attention": False,
            "enable_prefill_cp": False,
            "enable_mis": False,
            "enable_two_batch_overlap": False,
            "disable_attn_tp_gather": False,
            "moe_dense_tp_size": None,
            "attention_backend": backend,
            "prefill_attention_backend": None,
            "decode_attention_backend": None,
        }
    )


def model_runner(
    scenario: MetadataScenario,
    pools: Pools,
    arguments: Any,
    spec_algorithm: Any,
    device: str,
    translator: Any,
    context: int,
    backend: str,
) -> StandIn:
    """A `ModelRunner` of a model with that `context`, for `backend` and graphs (read in 0.5.15 to 0.5.23)."""
    block = scenario.draft_tokens if scenario.algorithm != "NONE" else 1
    return StandIn(
        device=device,
        gpu_id=0,
        page_size=scenario.pool.page_size,
        model_config=_model_config(scenario, pools, context),
        is_draft_worker=scenario.mode in ("draft_block", "draft_decode", "draft_extend"),
        dtype=pools.dtype,
        kv_cache_dtype=pools.dtype,
        kv_cache_dtype_str="auto",
        # The backend sizes its buffers by the pool, which on a server has a row for every request of a graph.
        req_to_token_pool=StandIn(size=MAX_REQUESTS, req_to_token=pools.req_to_token_pool.req_to_token),
        token_to_kv_pool=pools.kv_pool,
        token_to_kv_pool_allocator=pools.allocator,
        kv_index_translator=translator,
        decode_num_tokens_per_req=lambda: block,
        is_hybrid_swa=pools.hybrid,
        # sglang's window is how many positions are seen before a query's own.
        sliding_window_size=scenario.window - 1 if scenario.window else None,
        use_mla_backend=False,
        server_args=arguments,
        prefill_attention_backend_str=backend,
        decode_attention_backend_str=backend,
        spec_algorithm=spec_algorithm,
        hybrid_gdn_config=None,
        kimi_linear_config=None,
        linear_attn_model_spec=None,
        attention_chunk_size=None,
        ps=StandIn(attn_cp_size=1, attn_tp_size=1, tp_size=1),
        attn_cp_size=1,
        tp_size=1,
    )


def _model_config(scenario: MetadataScenario, pools: Pools, context: int) -> StandIn:
    from sglang.srt.configs.model_config import AttentionArch
    from transformers import Qwen3Config

    assert scenario.attention is not None
    heads, kv_heads = scenario.attention.query_heads, scenario.attention.kv_heads
    config = Qwen3Config(architectures=["Qwen3ForCausalLM"], num_attention_heads=heads)
    return StandIn(
        dtype=pools.dtype,
        attention_arch=AttentionArch.MHA,
        context_len=context,
        hf_config=config,
        hf_text_config=config,
        num_attention_heads=heads,
        get_max_num_attention_heads=lambda: heads,
        get_num_kv_heads=lambda *sizes: kv_heads,
        head_dim=HEAD_SIZE,
        v_head_dim=HEAD_SIZE,
        swa_v_head_dim=HEAD_SIZE,
        is_encoder_decoder=False,
        is_multimodal=False,
        is_local_attention_model=False,
        linear_attn_registry_result=None,
    )
