"""Every emulated operator is called once, and heard at the operator boundary exactly if it says that it announces.

`docs/operators.md` calls an operator checked by the sanitizer because of what is tested here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from harness.npu import (
    fault,
    finder,  # noqa: F401  registers the emulated operators
)
from harness.npu.boundary import CacheWrite, Event, listening
from harness.npu.overloads import Operator, Traits
from harness.npu.registry import emulated_names, lookup

_OPERATORS = {name: found for name in emulated_names() if isinstance(found := lookup(name), Operator)}
_PAGE_SIZE, _HEADS, _DIMENSION = 16, 2, 64


def _fused(**names: str) -> dict[str, Any]:
    """One query over two positions, with the arguments named as in the first version unless `names` says otherwise."""
    cache = torch.zeros(1, _PAGE_SIZE, _HEADS * _DIMENSION)
    arguments = {
        "query": torch.zeros(1, 1, _HEADS * _DIMENSION),
        "key": cache,
        "value": cache.clone(),
        "block_table": torch.zeros(1, 1, dtype=torch.int32),
        "block_size": _PAGE_SIZE,
        "num_heads": _HEADS,
        "actual_seq_lengths_kv": [2],
    }
    return {names.get(name, name): value for name, value in arguments.items()}


def _paged(**more: Any) -> dict[str, Any]:
    return more | {
        "query": torch.zeros(1, _HEADS, _DIMENSION),
        "key_cache": torch.zeros(1, _PAGE_SIZE, _HEADS, _DIMENSION),
        "value_cache": torch.zeros(1, _PAGE_SIZE, _HEADS, _DIMENSION),
        "num_kv_heads": _HEADS,
        "num_heads": _HEADS,
        "scale_value": 1.0,
        "block_table": torch.zeros(1, 1, dtype=torch.int32),
        "context_lens": torch.tensor([2]),
        "out": torch.zeros(1, _HEADS, _DIMENSION),
    }


def _written(slots: str) -> dict[str, Any]:
    rows, cache = torch.zeros(1, _HEADS, _DIMENSION), torch.zeros(1, _PAGE_SIZE, _HEADS, _DIMENSION)
    return {
        "key": rows,
        "value": rows,
        "key_cache": cache,
        "value_cache": cache.clone(),
        slots: torch.tensor([3]),
    }


def _sinks(**more: Any) -> dict[str, Any]:
    return more | {
        "query": torch.zeros(1, _HEADS * _DIMENSION),
        "k_cache": torch.zeros(1, _PAGE_SIZE, _HEADS, _DIMENSION),
        "v_cache": torch.zeros(1, _PAGE_SIZE, _HEADS, _DIMENSION),
        "sinks": torch.zeros(_HEADS),
        "block_tables": torch.zeros(1, 1, dtype=torch.int32),
        "context_lens": torch.tensor([2]),
        "scale": 1.0,
        "sliding_window_size": -1,
        "q_head_num": _HEADS,
        "k_head_num": _HEADS,
    }


def _latent() -> dict[str, Any]:
    arguments = _paged(mla_vheadsize=_DIMENSION // 2, num_kv_heads=1)
    arguments["key_cache"], arguments["num_kv_heads"] = torch.zeros(1, _PAGE_SIZE, 1, _DIMENSION), 1
    arguments["out"] = torch.zeros(1, _HEADS, _DIMENSION // 2)
    del arguments["value_cache"]
    return arguments


def _ring() -> dict[str, Any]:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.zeros(1, _HEADS, *shape)

    return {
        "q_nope": tensor(128),
        "q_rope": tensor(64),
        "k_nope": tensor(128),
        "k_rope": tensor(64),
        "value": tensor(128),
        "mask": torch.zeros(512, 512),
        "seqlen": torch.tensor([1]),
        "head_num": _HEADS,
        "kv_head_num": _HEADS,
        "mask_type": "no_mask",
        "calc_type": "calc_type_first_ring",
        "output": tensor(128),
        "softmax_lse": torch.zeros(_HEADS, 1),
    }


#: One call of each operator, on a KV cache if it works on one.
CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "npu.npu_fused_infer_attention_score": _fused,
    "npu._npu_fused_infer_attention_score_get_max_workspace": _fused,
    "npu.npu_fused_infer_attention_score_v2": lambda: _fused(
        num_heads="num_query_heads", actual_seq_lengths_kv="actual_seq_kvlen"
    ),
    "npu._npu_paged_attention": _paged,
    "npu._npu_flash_attention_qlens": lambda: _paged(mask=torch.ones(8, 8).triu(1), seq_len=torch.tensor([1])),
    "npu._npu_reshape_and_cache": lambda: _written("slot_indices"),
    "npu.npu_scatter_pa_kv_cache": lambda: _written("slot_mapping") | {"cache_mode": "Norm"},
    "npu._npu_paged_attention_mla": _latent,
    "npu.npu_ring_mla": _ring,
    "npu.npu_attention_update": lambda: {
        "lse": [torch.zeros(1)],
        "local_out": [torch.zeros(1, _DIMENSION)],
        "update_type": 0,
    },
    "sgl_kernel_npu.attention.sinks_attention.attention_sinks_triton": _sinks,
    "sgl_kernel_npu.attention.sinks_attention.attention_sinks_prefill_triton": lambda: _sinks(
        seq_lens=torch.tensor([1])
    ),
    "npu.build_tree_kernel_efficient": lambda: {
        "parent_list": torch.tensor([[-1]]),
        "selected_index": torch.zeros(1, 0, dtype=torch.int64),
        "verified_seq_len": torch.tensor([2]),
        "tree_mask": torch.zeros(1, dtype=torch.bool),
        "positions": torch.zeros(1, dtype=torch.int64),
        "retrive_index": torch.zeros(1, 1, dtype=torch.int64),
        **dict.fromkeys(("retrive_next_token", "retrive_next_sibling"), torch.full((1, 1), -1)),
        "topk": 1,
        "depth": 1,
        "draft_token_num": 1,
        "tree_mask_mode": 1,
    },
    "sgl_kernel_npu.sample.verify_tree_greedy.verify_tree_greedy": lambda: {
        "predicts": torch.zeros(1, dtype=torch.int32),
        "accept_index": torch.zeros(1, 1, dtype=torch.int32),
        "accept_token_num": torch.zeros(1, dtype=torch.int32),
        "candidates": torch.zeros(1, 1, dtype=torch.int64),
        "retrive_index": torch.zeros(1, 1, dtype=torch.int64),
        "target_predict": torch.zeros(1, 1),
        **dict.fromkeys(("retrive_next_token", "retrive_next_sibling"), torch.full((1, 1), -1)),
    },
    **dict.fromkeys(
        (
            "sgl_kernel_npu.sample.tree_speculative_sampling_target_only",
            "sgl_kernel_npu.sample.chain_speculative_sampling_triton",
        ),
        lambda: {
            "predicts": torch.zeros(1, dtype=torch.int32),
            "accept_index": torch.zeros(1, 1, dtype=torch.int32),
            "accept_token_num": torch.zeros(1, dtype=torch.int32),
            "candidates": torch.zeros(1, 1, dtype=torch.int64),
            "retrive_index": torch.zeros(1, 1, dtype=torch.int64),
            "uniform_samples": torch.zeros(1, 1),
            "uniform_samples_for_final_sampling": torch.zeros(1),
            "target_probs": torch.ones(1, 1, 1),
            "draft_probs": torch.zeros(1, 1, 1),
            **dict.fromkeys(("retrive_next_token", "retrive_next_sibling"), torch.full((1, 1), -1)),
        },
    ),
    "sgl_kernel_npu.sample.top_k_renorm_prob": lambda: {"probs": torch.ones(1, 1), "top_ks": torch.ones(1)},
    "sgl_kernel_npu.sample.top_p_renorm_prob": lambda: {"probs": torch.ones(1, 1), "top_ps": torch.ones(1)},
    "npu.npu_top_k_top_p": lambda: {"logits": torch.ones(1, 1)},
    "npu.npu_rotary_mul": lambda: {name: torch.ones(1, 1, 1, 4) for name in ("input", "r1", "r2")},
    "npu.npu_mrope": lambda: {
        "positions": torch.tensor([0]),
        "query": torch.ones(1, 4),
        "key": torch.ones(1, 4),
        "cos_sin_cache": torch.ones(1, 4),
        "head_size": 4,
    },
    "sgl_kernel_npu.norm.fused_rope_qk_mqa.fused_rope_qk_mqa": lambda: {
        "query": torch.ones(1, 1, 4),
        "key": torch.ones(1, 1, 4),
        "cos_sin": torch.ones(1, 4),
        "rotary_dim": 4,
        "is_neox_style": False,
    },
    "npu.npu_transpose_batchmatmul": lambda: {
        "input": torch.ones(1, 1, 4),
        "weight": torch.ones(1, 4, 2),
        "perm_x1": (1, 0, 2),
        "perm_x2": (0, 1, 2),
        "perm_y": (1, 0, 2),
    },
    "npu.batch_matmul_transpose": lambda: {
        "tensor_a": torch.ones(1, 1, 4),
        "tensor_b": torch.ones(1, 4, 2),
        "tensor_c": torch.zeros(1, 1, 2),
    },
    "sgl_kernel_npu.norm.split_qkv_rmsnorm_rope.split_qkv_rmsnorm_rope": lambda: {
        "input": torch.ones(1, 12),
        "sin": torch.ones(1, 4),
        "cos": torch.ones(1, 4),
        "q_hidden_size": 4,
        "kv_hidden_size": 4,
        "head_dim": 4,
    },
    "npu.cache_loc_update": lambda: {
        "req_indices": torch.tensor([0]),
        "token_pool": torch.ones(1, 4, dtype=torch.int32),
        "start_offset": torch.tensor([0]),
        "end_offset": torch.tensor([1]),
        "out_cache_loc": torch.zeros(1, dtype=torch.int64),
    },
    "npu.npu_rms_norm": lambda: {"input": torch.ones(1, 4), "gamma": torch.ones(4)},
    "npu.npu_gemma_rms_norm": lambda: {"input": torch.ones(1, 4), "gamma": torch.ones(4)},
    "npu.npu_add_rms_norm": lambda: {"x1": torch.ones(1, 4), "x2": torch.ones(1, 4), "gamma": torch.ones(4)},
    "npu.npu_swiglu": lambda: {"input": torch.ones(1, 4)},
    "npu.npu_scatter_nd_update_": lambda: {
        "input": torch.zeros(_PAGE_SIZE, _HEADS, _DIMENSION),
        "indices": torch.tensor([[3]]),
        "updates": torch.zeros(1, _HEADS, _DIMENSION),
    },
}


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """A device that no earlier test has stopped."""
    fault.reset()
    yield
    fault.reset()


def _heard(operator: Operator, arguments: dict[str, Any]) -> set[tuple[str, type[Event]]]:
    heard: set[tuple[str, type[Event]]] = set()
    with listening(lambda event: heard.add((event.operator, type(event)))):
        operator(**arguments)
    return heard


@pytest.mark.parametrize("name", _OPERATORS)
def test_an_operator_announces_what_it_says(name: str) -> None:
    assert name in CALLS, "add a call of it to CALLS"
    operator = _OPERATORS[name]
    expected = set() if operator.traits.announces is None else {(operator.__name__, operator.traits.announces)}
    assert _heard(operator, CALLS[name]()) == expected


def test_an_operator_that_announces_nothing_is_not_heard() -> None:
    """The planted fault: it says that it announces, and does not."""
    silent = Operator(lambda: None, Traits(announces=CacheWrite))
    assert _heard(silent, {}) == set()
