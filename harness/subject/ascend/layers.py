"""The layers whose attention runs: real `RadixAttention` objects, and how the model calls them.

Sources: `RadixAttention.forward`, `deepseek_v2_attention_mla_npu.py` (0.5.15 to 0.5.23).
"""

from typing import Any, NamedTuple

import torch

from harness.scenario import MetadataScenario
from harness.scenario.content import LATENT_SIZE, TILE, absorbed, output_size, query_size, softmax_scale
from harness.scenario.metadata import HEAD_SIZE
from harness.subject.ascend import releases
from harness.subject.ascend.pools import FIRST_LAYER
from harness.subject.blame import ModelError


def layers(scenario: MetadataScenario, projections: torch.Tensor | None) -> list[Any]:
    """The layers of `scenario`: one, and where there is a sliding window a second one that has it.

    MLA's extend has keys of every head, and the projection that makes them. sglang's `sliding_window_size` is how many
    positions are seen before a query's own. A draft block is causal in a window layer (`dflash.py`, 0.5.23).
    """
    made = [_layer(scenario, FIRST_LAYER if scenario.target in ("mha", "mla") else 0)]
    if scenario.target == "swa":
        made.append(_layer(scenario, 1, scenario.window - 1))
    if scenario.target == "mla" and not absorbed(scenario):
        made[0].kv_b_proj = _Projection(projections)
    return made


def _layer(scenario: MetadataScenario, number: int, window: int = -1) -> Any:
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

    assert scenario.attention is not None
    by_head = scenario.target == "mla" and not absorbed(scenario)
    whole_block = scenario.mode == "draft_block" and window == -1
    return RadixAttention(
        num_heads=scenario.attention.query_heads,
        head_dim=query_size(scenario),
        v_head_dim=output_size(scenario),
        scaling=softmax_scale(scenario),
        num_kv_heads=scenario.attention.query_heads if by_head else scenario.attention.kv_heads,
        layer_id=number,
        sliding_window_size=window,
        attn_type=AttentionType.ENCODER_ONLY if whole_block else AttentionType.DECODER,
    )


class _Projection:
    """Stands in for the model's `kv_b_proj`: a linear layer that returns its output and no bias."""

    def __init__(self, projections: torch.Tensor | None) -> None:
        assert projections is not None
        self.weight = projections.flatten(0, 1)

    def __call__(self, latent: torch.Tensor) -> tuple[torch.Tensor, None]:
        return latent @ self.weight.T, None


class Inputs(NamedTuple):
    """What one step gives to every layer: query rows, and the rows that it adds to the layer's two caches."""

    queries: torch.Tensor
    first: torch.Tensor
    second: torch.Tensor


def attend(
    run: Any,
    layer: Any,
    scenario: MetadataScenario,
    forward_batch: Any,
    pool: Any,
    inputs: Inputs,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Call `run`, a forward of the backend, as the model does."""
    query, latent, rope = inputs
    if scenario.target != "mla":
        extra = {} if sinks is None else {"sinks": sinks}
        return _projected(run(query.flatten(1), inputs.first, inputs.second, layer, forward_batch, **extra), scenario)
    assert scenario.attention is not None
    fused = scenario.attention.nz and not releases.pools_write_nz()
    if fused:
        _write_tiles(pool, layer.layer_id, forward_batch.out_cache_loc, latent, rope)
    if absorbed(scenario):
        nope, query_rope = query[..., :LATENT_SIZE].contiguous(), query[..., LATENT_SIZE:].contiguous()
        return _tensor(run(nope, latent, latent, layer, forward_batch, q_rope=query_rope, k_rope=rope))
    # The model writes the cache before it attends, and makes keys and values of the new tokens itself. Latents and rope
    # parts come from one projection, and the rope parts are a slice of it.
    rope = torch.cat([latent, rope], dim=-1)[..., LATENT_SIZE:]
    if not fused:
        pool.set_kv_buffer(layer, forward_batch.out_cache_loc, latent, rope)
    projected = layer.kv_b_proj(latent)[0].view(len(latent), layer.tp_k_head_num, 2 * HEAD_SIZE)
    key_nope, value = projected[..., :HEAD_SIZE], projected[..., HEAD_SIZE:]
    key = torch.cat([key_nope, rope.expand(-1, layer.tp_k_head_num, -1)], dim=-1)
    return _tensor(run(query, key, value, layer, forward_batch, save_kv_cache=False))


def _write_tiles(pool: Any, layer: int, slots: torch.Tensor, latent: torch.Tensor, rope: torch.Tensor) -> None:
    """Stands in for the fused operators that write NZ (`mla_preprocess`, `npu_kv_rmsnorm_rope_cache`) up to 0.5.20."""
    import torch_npu

    caches = (
        buffer.view(buffer.shape[0], -1, buffer.shape[1], TILE)
        for buffer in (pool.get_key_buffer(layer), pool.get_value_buffer(layer))
    )
    torch_npu.npu_scatter_pa_kv_cache(latent, rope, *caches, slots, cache_mode="PA_NZ")


def _projected(output: Any, scenario: MetadataScenario) -> torch.Tensor:
    """An output that a model multiplies with the weights of its output projection, as it comes: heads side by side."""
    assert scenario.attention is not None
    rows, width = _tensor(output), scenario.attention.query_heads * output_size(scenario)
    if rows.dim() != 2 or rows.shape[1] != width:
        raise ModelError(f"the output projection takes rows of {width} numbers, and gets {list(rows.shape)}")
    return rows


def _tensor(output: Any) -> torch.Tensor:
    assert isinstance(output, torch.Tensor)
    return output
