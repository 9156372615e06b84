"""The emulated attention operators, held to dense attention in float64 and to the device's argument rules."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.conformance.batch import CAUSAL, SCALE, Batch, Floats, causally, everything, make_batch
from harness.npu import fault
from harness.npu.attention_mask import is_causal
from harness.npu.boundary import AttentionRead, CacheWrite, Event, TileWrite, listening
from harness.npu.cache_writes import _npu_reshape_and_cache, npu_scatter_nd_update_, npu_scatter_pa_kv_cache
from harness.npu.fault import DeviceFault
from harness.npu.fused_attention import (
    _npu_fused_infer_attention_score_get_max_workspace,
    npu_fused_infer_attention_score,
    npu_fused_infer_attention_score_v2,
)
from harness.npu.paged_attention import _npu_flash_attention_qlens, _npu_paged_attention

_ROOT = Path(__file__).parents[2]
_DIMENSION = 64
_PAGE_SIZES = (16, 64, 128)
_HEADS = ((2, 2), (4, 2), (6, 1))


def _batch(
    query_lengths: tuple[int, ...],
    kv_lengths: tuple[int, ...],
    page_size: int = 16,
    heads: int = 4,
    kv_heads: int = 2,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Requests whose pages are surrounded by NaN, as the emulation reads nothing else."""
    return make_batch(
        query_lengths, kv_lengths, page_size, heads, kv_heads, dtype=dtype, dimension=_DIMENSION, around=np.nan
    )


def _agree(found: torch.Tensor, expected: Floats, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(found.double().numpy().reshape(expected.shape), expected, atol=tolerance)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """A device of its own for each test, as some stop it."""
    fault.reset()
    yield
    fault.reset()


@pytest.fixture
def small() -> Batch:
    return _batch((3, 2), (20, 7))


@pytest.mark.parametrize("page_size", _PAGE_SIZES)
@pytest.mark.parametrize(("heads", "kv_heads"), _HEADS)
def test_verifying_is_causal_from_the_last_position(page_size: int, heads: int, kv_heads: int) -> None:
    batch = _batch((4, 4, 4), (5, 130, 64), page_size, heads, kv_heads)
    found, sums = npu_fused_infer_attention_score(**batch.fused(actual_seq_lengths=np.array(batch.ends)))
    _agree(found, batch.reference(causally))
    assert sums.tolist() == [0.0]


def test_values_may_be_narrower_than_keys_of_192() -> None:
    """As in MiMo-V2, in every layout; of another size they may not."""
    batch = make_batch((2, 3), (20, 7), 16, dtype=torch.float64, dimension=192, around=np.nan)
    values = batch.value[..., :128].contiguous()
    expected = batch.reference(causally)
    found, _ = npu_fused_infer_attention_score(**batch.fused(value=values.flatten(2)))
    assert found.shape == (5, 4, 128)
    _agree(found, expected.reshape(5, 4, 192)[..., :128])

    with pytest.raises(RuntimeError, match=r"value is of shape .*: key has head dimension 192"):
        npu_fused_infer_attention_score(**batch.fused(value=batch.value[..., :64].flatten(2)))


@pytest.mark.parametrize("page_size", _PAGE_SIZES)
def test_a_draft_block_seeseverything(page_size: int) -> None:
    batch = _batch((8, 8), (8, 140), page_size)
    found, _ = npu_fused_infer_attention_score(**batch.fused(atten_mask=None, sparse_mode=0))
    _agree(found, batch.reference(everything))


@pytest.mark.parametrize("page_size", _PAGE_SIZES)
@pytest.mark.parametrize(("heads", "kv_heads"), _HEADS)
def test_extending_agrees_in_both_operators(page_size: int, heads: int, kv_heads: int) -> None:
    batch = _batch((6, 1, 17), (6, 40, 33), page_size, heads, kv_heads)
    lengths = torch.tensor(batch.kv_lengths, dtype=torch.int32)
    found, _ = npu_fused_infer_attention_score(**batch.fused(actual_seq_lengths_kv=lengths))
    _agree(found, batch.reference(causally))
    arguments = batch.qlens()
    _npu_flash_attention_qlens(**arguments)
    _agree(arguments["out"], batch.reference(causally))


@pytest.mark.parametrize("page_size", _PAGE_SIZES)
@pytest.mark.parametrize(("heads", "kv_heads"), _HEADS)
def test_decoding_agrees_in_all_operators_and_layouts(page_size: int, heads: int, kv_heads: int) -> None:
    batch = _batch((1, 1, 1), (1, 128, 77), page_size, heads, kv_heads)
    expected = batch.reference(everything)
    by_head = batch.query.unsqueeze(1)
    _agree(npu_fused_infer_attention_score(**batch.padded())[0], expected)
    _agree(npu_fused_infer_attention_score(**batch.padded(query=by_head, input_layout="BSND"))[0], expected)
    heads_first = {name: getattr(batch, name).transpose(1, 2).contiguous() for name in ("key", "value")}
    arguments = batch.padded(query=by_head.transpose(1, 2), input_layout="BNSD", **heads_first)
    _agree(npu_fused_infer_attention_score(**arguments)[0].transpose(1, 2), expected)
    single = batch.single()
    assert _npu_paged_attention(**single) is None
    _agree(single["out"], expected)


def test_the_out_overload_writes_into_what_it_is_given() -> None:
    batch = _batch((1, 1), (9, 30))
    arguments = batch.padded()
    workspace = _npu_fused_infer_attention_score_get_max_workspace(**arguments)
    out = [torch.empty_like(arguments["query"]), torch.empty(1, dtype=torch.float64)]
    npu_fused_infer_attention_score.out(**arguments, workspace=workspace, out=out)
    _agree(out[0], batch.reference(everything))
    with pytest.raises(RuntimeError, match="attention_out is of shape"):
        npu_fused_infer_attention_score.out(**arguments, out=[torch.empty(3), out[1]])


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("num_key_value_heads is 3: it must divide", {"num_key_value_heads": 3}),
        (r"atten_mask is of shape .*: it must hide", {"atten_mask": torch.zeros(1, 4, dtype=torch.bool)}),
        ("value is of shape", {"value": torch.zeros(9, 16, 7, dtype=torch.float64)}),
    ],
    ids=["heads", "mask", "value"],
)
def test_the_query_for_its_workspace_refuses_what_the_operator_does(text: str, change: dict[str, Any]) -> None:
    batch = _batch((1, 1), (9, 30))
    assert _npu_fused_infer_attention_score_get_max_workspace(**batch.padded()).numel() == 0
    for ask in (npu_fused_infer_attention_score, _npu_fused_infer_attention_score_get_max_workspace):
        with pytest.raises(RuntimeError, match=text):
            ask(**batch.padded(**change))


def test_the_query_for_a_workspace_reads_no_mask(small: Batch) -> None:
    """What a mask holds is not known yet while a graph is captured."""
    empty = torch.zeros(2048, 2048, dtype=torch.int8)

    assert _npu_fused_infer_attention_score_get_max_workspace(**small.fused(atten_mask=empty)).numel() == 0


def test_the_second_version_takes_one_request_at_a_time() -> None:
    batch = _batch((5,), (21,))
    query, key, value = batch.merged()
    found, _ = npu_fused_infer_attention_score_v2.default(
        query[None],
        key,
        value,
        **batch.paged(),
        num_query_heads=4,
        num_key_value_heads=2,
        input_layout="BSND",
        actual_seq_qlen=[5],
        actual_seq_kvlen=[21],
        atten_mask=CAUSAL[None].to(torch.int8),
        sparse_mode=3,
        softmax_scale=SCALE,
    )
    _agree(found, batch.reference(causally))


@pytest.mark.parametrize(("sinks", "window"), [(None, 4), ([0.5, -1.0, 2.0, 0.0], 4), ([0.5, -1.0, 2.0, 0.0], 100)])
def test_windows_and_sinks(sinks: list[float] | None, window: int) -> None:
    batch = _batch((3, 1), (20, 9))
    query, key, value = batch.merged()
    found, _ = npu_fused_infer_attention_score_v2(
        query,
        key,
        value,
        **batch.paged(),
        num_query_heads=4,
        num_key_value_heads=2,
        input_layout="TND",
        actual_seq_qlen=batch.ends,
        actual_seq_kvlen=batch.kv_lengths,
        atten_mask=CAUSAL,
        sparse_mode=4,
        pre_tokens=window,
        next_tokens=0,
        softmax_scale=SCALE,
        learnable_sink=None if sinks is None else torch.tensor(sinks),
    )

    def within(query: int, position: int, queries: int, positions: int) -> bool:
        own = positions - queries + query
        return own - window <= position <= own

    _agree(found, batch.reference(within, sinks))


def test_a_single_padded_query_reads_the_whole_mask_whatever_the_sparse_mode() -> None:
    batch = _batch((1, 1), (9, 30))
    mask = torch.ones(2, 1, batch.table.shape[1] * 16, dtype=torch.bool)
    mask[0, :, 2:9] = mask[1, :, 20:30] = False
    by_head = {"query": batch.query.unsqueeze(1), "input_layout": "BSND"}
    band = batch.padded(**by_head, atten_mask=mask, sparse_mode=4, pre_tokens=3, next_tokens=0)
    found, _ = npu_fused_infer_attention_score(**band)

    def not_hidden(query: int, position: int, queries: int, positions: int) -> bool:
        return position >= (2 if positions == 9 else 20)

    _agree(found, batch.reference(not_hidden))


def test_no_queries_give_no_output_as_documented() -> None:
    batch = _batch((1, 1), (9, 30))
    nothing = torch.zeros(2, 0, 4 * _DIMENSION, dtype=torch.float64)
    found, sums = npu_fused_infer_attention_score(**batch.padded(query=nothing))
    assert found.shape == nothing.shape
    assert sums.tolist() == [0.0]


def test_left_up_causality_has_no_effect_for_a_single_query_as_documented() -> None:
    batch = _batch((1, 1), (9, 30))
    found, _ = npu_fused_infer_attention_score(**batch.fused(sparse_mode=2))
    _agree(found, batch.reference(everything))


def test_left_up_causality_counts_from_the_first_position() -> None:
    batch = _batch((3, 2), (20, 7))
    found, _ = npu_fused_infer_attention_score(**batch.fused(sparse_mode=2))
    _agree(found, batch.reference(lambda query, position, queries, positions: position <= query))


@pytest.mark.parametrize("axes", [2, 3, 4])
def test_a_whole_mask_hides_positions_of_its_request(axes: int) -> None:
    batch = _batch((1, 1), (9, 30))
    mask = torch.zeros(2, batch.table.shape[1] * 16, dtype=torch.bool)
    mask[0, :3] = mask[1, 10:] = True
    shaped = mask.view(2, *(1,) * (axes - 2), -1)
    found, _ = npu_fused_infer_attention_score(**batch.padded(atten_mask=shaped))

    def not_hidden(query: int, position: int, queries: int, positions: int) -> bool:
        return position >= 3 if positions == 9 else position < 10

    _agree(found, batch.reference(not_hidden))


def test_shorter_requests_of_a_padded_batch_leave_zeros() -> None:
    batch = _batch((3, 3), (20, 7))
    found, _ = npu_fused_infer_attention_score(**batch.padded(actual_seq_lengths=[3, 1], actual_seq_lengths_kv=[20, 7]))
    _agree(found[0], batch.reference(everything)[:3])
    _agree(found[1, :1], batch.reference(everything)[3:4])
    assert not found[1, 1:].any()


def test_no_positions_give_zeros() -> None:
    batch = _batch((1, 4), (0, 2))
    found, _ = npu_fused_infer_attention_score(**batch.fused())
    _agree(found, batch.reference(causally))
    assert not found[:3].any()  # also two queries before the first position


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_results_have_the_type_of_queries(dtype: torch.dtype, tolerance: float) -> None:
    batch = _batch((4, 4), (30, 9), dtype=dtype)
    found, _ = npu_fused_infer_attention_score(**batch.fused())
    assert found.dtype == dtype
    _agree(found, batch.reference(causally), tolerance)


_WIDE = torch.zeros(2, 16, 2 * 64, dtype=torch.float32)
_FUSED_REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("input_layout is SBH", {"input_layout": "SBH"}),
    ("sparse_mode is 5", {"sparse_mode": 5}),
    ("atten_mask is None", {"atten_mask": None}),
    ("atten_mask is of shape", {"atten_mask": CAUSAL[:128, :128]}),
    ("atten_mask is torch.float32", {"atten_mask": CAUSAL.float()}),
    ("atten_mask is of shape", {"sparse_mode": 0}),
    ("pre_tokens is -5", {"sparse_mode": 4, "pre_tokens": -5, "next_tokens": 0}),
    ("actual_seq_lengths is None", {"actual_seq_lengths": None}),
    (r"actual_seq_lengths is \[3, 2\]", {"actual_seq_lengths": [3, 2]}),
    (r"actual_seq_lengths is \[3, 4\]", {"actual_seq_lengths": [3, 4]}),
    (r"actual_seq_lengths is \[-1, 5\]", {"actual_seq_lengths": [-1, 5]}),
    ("actual_seq_lengths_kv is None", {"actual_seq_lengths_kv": None}),
    (r"actual_seq_lengths_kv is \[20\]", {"actual_seq_lengths_kv": [20]}),
    (r"actual_seq_lengths_kv is \[20, -1\]", {"actual_seq_lengths_kv": [20, -1]}),
    (r"block_table is of shape \[1, 2\]", {"block_table": torch.zeros(1, 2, dtype=torch.int32)}),
    (r"block_table is of shape \[2\]", {"block_table": torch.zeros(2, dtype=torch.int32)}),
    ("block_table is torch.int64", {"block_table": torch.zeros(2, 2, dtype=torch.int64)}),
    ("block_size is 0", {"block_size": 0}),
    ("block_size is 24", {"block_size": 24}),
    ("block_size is 1024", {"block_size": 1024}),
    ("key is of shape", {"block_size": 32}),
    ("num_heads is 0", {"num_heads": 0}),
    ("num_key_value_heads is 3", {"num_key_value_heads": 3}),
    ("num_heads is 128", {"num_heads": 128, "num_key_value_heads": 1}),
    ("num_key_value_heads is -1", {"num_key_value_heads": -1}),
    ("query is of head dimension 64", {"num_key_value_heads": 1}),
    ("query is of shape", {"num_heads": 8}),
    ("query is of shape", {"query": torch.zeros(5, 256, dtype=torch.float64)}),
    ("query is of shape", {"query": torch.zeros(0, 4, 64, dtype=torch.float64)}),
    ("key is torch.float32", {"key": _WIDE}),
    ("value is of shape", {"value": _WIDE.double()}),
    ("num_heads is 512: it must not exceed 256", {"num_heads": 512, "num_key_value_heads": 64}),
    ("value is of shape .*: key has head dimension 64", {"value": torch.zeros(9, 16, 2 * 32, dtype=torch.float64)}),
    ("key_rope is None", {"query_rope": torch.zeros(5, 4, 64, dtype=torch.float64)}),
    ("query_rope is None", {"key_rope": _WIDE.double()}),
]


@pytest.mark.parametrize(("text", "change"), _FUSED_REFUSALS)
def test_fused_attention_refuses_by_name(small: Batch, text: str, change: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=f"npu_fused_infer_attention_score: {text}") as refusal:
        npu_fused_infer_attention_score(**small.fused(**change))
    assert type(refusal.value) is RuntimeError
    npu_fused_infer_attention_score(**small.fused())


def test_packed_queries_have_known_head_dimensions() -> None:
    narrow = {"query": torch.zeros(1, 1, 48), "key": torch.zeros(1, 16, 48), "value": torch.zeros(1, 16, 48)}
    with pytest.raises(RuntimeError, match=r"query is of shape \[1, 1, 48\]: in TND, D must be one of"):
        npu_fused_infer_attention_score(
            **narrow,
            input_layout="TND",
            block_size=16,
            block_table=torch.zeros(1, 1, dtype=torch.int32),
            actual_seq_lengths=[1],
            actual_seq_lengths_kv=[1],
        )


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (r"actual_seq_lengths is \[4, 4\]", {"actual_seq_lengths": [4]}),
        (r"actual_seq_lengths_kv is \[\]", {"actual_seq_lengths_kv": []}),
        ("query is of shape", {"num_heads": 5, "num_key_value_heads": 1}),
        ("atten_mask is of shape", {"atten_mask": torch.zeros(2, 3, 20, dtype=torch.bool)}),
        ("atten_mask is of shape", {"atten_mask": torch.zeros(3, 3, 64, dtype=torch.bool)}),
        ("atten_mask is of shape", {"atten_mask": torch.zeros(64, dtype=torch.bool)}),
        ("key is of shape", {"key": torch.zeros(9, 2, 16, 64, dtype=torch.float64)}),
        ("key is of shape", {"key": torch.zeros(1, 16, 65540, dtype=torch.float64), "num_key_value_heads": 4}),
    ],
)
def test_padded_layouts_refuse_by_name(text: str, change: dict[str, Any]) -> None:
    batch = _batch((3, 3), (20, 7))
    with pytest.raises(RuntimeError, match=text):
        npu_fused_infer_attention_score(**batch.padded(**change))


def test_a_single_length_is_every_group_s_and_further_ones_are_not_used() -> None:
    batch = _batch((1, 1), (9, 9))
    for lengths in ([9], [9, 9, 500]):
        found, _ = npu_fused_infer_attention_score(**batch.padded(actual_seq_lengths_kv=lengths))
        _agree(found, batch.reference(everything))


@pytest.mark.parametrize("length", [12, 16])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.uint8, torch.float32])
def test_a_mask_is_causal_whatever_its_type_and_its_place_in_memory(dtype: torch.dtype, length: int) -> None:
    above = torch.ones(length, length).triu(1).to(dtype)
    shown, hidden = above.clone(), above.clone()
    shown[3, 5], hidden[5, 3] = 0, 1

    assert is_causal(above) and is_causal(above * 3) and is_causal(above.T.contiguous().T)
    assert not is_causal(shown) and not is_causal(hidden) and not is_causal(hidden.T.contiguous().T)


_NOT_EMULATED: list[tuple[str, dict[str, Any]]] = [
    (
        "block_table = None in BSH",
        {"block_table": None, "query": torch.zeros(1, 5, 256, dtype=torch.float64), "input_layout": "BSH"},
    ),
    ("sparse_mode = 1", {"sparse_mode": 1}),
    ("input_layout = TND_NTD", {"input_layout": "TND_NTD"}),
    ("softmax_lse_flag = True", {"softmax_lse_flag": True}),
    ("antiquant_mode = 1", {"antiquant_mode": 1}),
    ("antiquant_scale = ", {"antiquant_scale": torch.zeros(2)}),
    ("atten_mask = one that is not causal", {"atten_mask": torch.zeros(2048, 2048, dtype=torch.bool)}),
    ("query = torch.int8", {"query": torch.zeros(5, 4, 64, dtype=torch.int8)}),
    ("key = a cache in the layout NZ without rope parts", {"key": torch.zeros(9, 2, 4, 16, 16, dtype=torch.float64)}),
]


@pytest.mark.parametrize(("text", "change"), _NOT_EMULATED)
def test_what_is_not_emulated_is_named(small: Batch, text: str, change: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match=text):
        npu_fused_infer_attention_score(**small.fused(**change))


def test_a_narrowed_whole_mask_is_not_emulated() -> None:
    batch = _batch((3, 3), (20, 7))
    whole = torch.zeros(1, 3, 64, dtype=torch.bool)
    for name in ("pre_tokens", "next_tokens"):
        with pytest.raises(NotImplementedError, match=f"{name} = 4"):
            npu_fused_infer_attention_score(**batch.padded(atten_mask=whole, **{name: 4}))


def test_unknown_arguments_are_refused(small: Batch) -> None:
    with pytest.raises(TypeError, match="there is no argument number_of_heads"):
        npu_fused_infer_attention_score(**small.fused(number_of_heads=4))


def test_a_sink_is_one_per_head() -> None:
    batch = _batch((1,), (9,))
    query, key, value = batch.merged()
    with pytest.raises(RuntimeError, match=r"learnable_sink is of shape \[2\]"):
        npu_fused_infer_attention_score_v2(
            query[None],
            key,
            value,
            **batch.paged(),
            num_query_heads=4,
            num_key_value_heads=2,
            input_layout="BSND",
            actual_seq_kvlen=[9],
            learnable_sink=torch.zeros(2),
        )


@pytest.mark.parametrize(
    ("dimension", "sinks", "text"),
    [
        (24, None, "key is of shape .*: its head dimension, 24, must be a multiple of 16 up to 512"),
        (528, None, "key is of shape .*: its head dimension, 528, must be a multiple of 16 up to 512"),
        (144, torch.zeros(1), "value is of shape .*: beside learnable_sink its head dimension must not exceed 128"),
    ],
)
def test_head_dimensions_are_those_that_are_documented(dimension: int, sinks: torch.Tensor | None, text: str) -> None:
    cache = torch.zeros(1, 16, dimension)
    arguments: dict[str, Any] = {"block_table": torch.zeros(1, 1, dtype=torch.int32), "block_size": 16}
    with pytest.raises(RuntimeError, match=text):
        npu_fused_infer_attention_score_v2(
            torch.zeros(1, 1, dimension), cache, cache, **arguments, actual_seq_kvlen=[2], learnable_sink=sinks
        )


_PAGED_REFUSALS: list[tuple[str, dict[str, Any]]] = [
    (r"context_lens is \[20\]", {"context_lens": torch.tensor([20])}),
    (r"context_lens is \[20, -7\]", {"context_lens": torch.tensor([20, -7])}),
    ("context_lens is a list: it must be a tensor", {"context_lens": [20, 7]}),
    (r"seq_len is \[3, 3\]", {"seq_len": torch.tensor([3, 3])}),
    ("seq_len is a list: it must be a tensor", {"seq_len": [3, 2]}),
    ("num_kv_heads is 3", {"num_kv_heads": 3}),
    ("key_cache is of shape", {"num_kv_heads": 1}),
    ("key_cache is of shape", {"key_cache": torch.zeros(9, 24, 2, 64, dtype=torch.float64)}),
    ("key_cache is of shape", {"key_cache": torch.zeros(9, 256, 2, 64, dtype=torch.float64)}),
    ("key_cache is of shape", {"key_cache": torch.zeros(9, 16, 2, 512, dtype=torch.float64)}),
    ("value_cache is of shape", {"value_cache": torch.zeros(1, 16, 2, 64, dtype=torch.float64)}),
    ("value_cache is torch.float32", {"value_cache": torch.zeros(1, 16, 2, 64)}),
    ("query is of shape", {"query": torch.zeros(5, 4, 128, dtype=torch.float64)}),
    ("out is of shape", {"out": torch.zeros(5, 64, dtype=torch.float64)}),
    ("mask is of shape", {"mask": torch.zeros(4, 8)}),
    ("block_table is of shape", {"block_table": torch.zeros(3, 2, dtype=torch.int32)}),
]


@pytest.mark.parametrize(("text", "change"), _PAGED_REFUSALS)
def test_paged_attention_refuses_by_name(small: Batch, text: str, change: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=f"_npu_flash_attention_qlens: {text}"):
        _npu_flash_attention_qlens(**small.qlens(**change))


def test_another_mask_is_not_emulated_for_extending(small: Batch) -> None:
    with pytest.raises(NotImplementedError, match="mask = one that is not causal"):
        _npu_flash_attention_qlens(**small.qlens(mask=torch.zeros(128, 128)))


class _Events:
    """Remembers what was announced."""

    def __init__(self) -> None:
        self.heard: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.heard.append(event)


def test_reads_are_announced_with_their_numbers(small: Batch) -> None:
    events = _Events()
    with listening(events):
        npu_fused_infer_attention_score(**small.fused())
        _npu_flash_attention_qlens(**small.qlens())
    assert [event.operator for event in events.heard] == ["npu_fused_infer_attention_score"] * 2 + [
        "_npu_flash_attention_qlens"
    ] * 2
    assert [event.cache for event in events.heard] == [small.key.data_ptr(), small.value.data_ptr()] * 2
    for event in events.heard:
        assert isinstance(event, AttentionRead)
        assert (event.page_size, event.pages) == (16, len(small.key))
        assert (event.kv_lengths, event.query_lengths) == ((20, 7), (3, 2))
        np.testing.assert_array_equal(event.block_table, small.table.numpy())
        assert event.block_table.dtype == np.int64


def test_decoding_announces_single_queries() -> None:
    batch, events = _batch((1, 1), (9, 30)), _Events()
    with listening(events):
        _npu_paged_attention(**batch.single())
        npu_fused_infer_attention_score(**batch.padded())
    assert [event.query_lengths for event in events.heard if isinstance(event, AttentionRead)] == [(1, 1)] * 4


def test_a_listener_hears_of_a_fault_first_and_can_stop_the_operator(small: Batch) -> None:
    def stop(event: Event) -> None:
        raise LookupError(event.operator)

    narrow = small.table[:, :1]
    out = torch.zeros_like(small.query.flatten(1))
    with listening(stop):
        with pytest.raises(LookupError):
            _npu_flash_attention_qlens(**small.qlens(block_table=narrow, out=out))
        with pytest.raises(LookupError):
            npu_fused_infer_attention_score(**small.fused(block_table=narrow))
    assert not out.any()
    npu_fused_infer_attention_score(**small.fused())  # the device has not stopped


@pytest.fixture
def cache() -> torch.Tensor:
    return torch.zeros(4, 16, 2, 8)


def _tokens(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    key = torch.arange(1.0, count * 16 + 1).view(count, 2, 8)
    return key, -key


_SLOTS = torch.tensor([17, 3, 63], dtype=torch.int32)


def _reshape(key: Any, value: Any, caches: tuple[Any, Any], slots: Any) -> None:
    _npu_reshape_and_cache(key=key, value=value, key_cache=caches[0], value_cache=caches[1], slot_indices=slots)


def _scatter_pages(key: Any, value: Any, caches: tuple[Any, Any], slots: Any) -> None:
    npu_scatter_pa_kv_cache(key, value, *caches, slots, cache_mode="Norm")


def _scatter_each(key: Any, value: Any, caches: tuple[Any, Any], slots: Any) -> None:
    for rows, cache in zip((key, value), caches, strict=True):
        assert npu_scatter_nd_update_(cache.view(-1, 2, 8), slots.view(-1, 1), rows) is not None


def _scatter_each_with_a_page_axis(key: Any, value: Any, caches: tuple[Any, Any], slots: Any) -> None:
    for rows, cache in zip((key, value), caches, strict=True):
        npu_scatter_nd_update_(cache.view(-1, 1, 2, 8), slots.view(-1, 1), rows.unsqueeze(1))


_WRITERS = (_reshape, _scatter_pages, _scatter_each, _scatter_each_with_a_page_axis)


@pytest.mark.parametrize("write", _WRITERS)
def test_writes_go_to_their_slots_and_are_announced_before(write: Callable[..., None], cache: torch.Tensor) -> None:
    (key, value), other = _tokens(3), torch.zeros_like(cache)
    heard: list[tuple[int, list[int], bool]] = []

    def listen(event: Event) -> None:
        assert isinstance(event, CacheWrite)
        written = cache if event.cache == cache.data_ptr() else other
        heard.append((event.cache, event.slots.tolist(), bool(written.any())))

    with listening(listen):
        write(key, value, (cache, other), _SLOTS)
    assert heard == [(cache.data_ptr(), [17, 3, 63], False), (other.data_ptr(), [17, 3, 63], False)]
    for slot, row in zip(_SLOTS.tolist(), range(3), strict=True):
        assert torch.equal(cache[slot // 16, slot % 16], key[row])
        assert torch.equal(other[slot // 16, slot % 16], value[row])
    assert int((cache.view(64, -1) != 0).any(1).sum()) == 3


@pytest.mark.parametrize("write", _WRITERS)
@pytest.mark.parametrize("slot", [-1, 64])
def test_a_slot_outside_the_cache_stops_the_device(write: Callable[..., None], slot: int, cache: torch.Tensor) -> None:
    key, value = _tokens(3)
    with pytest.raises(DeviceFault, match=f"has {slot}, but there are 64 places"):
        write(key, value, (cache, torch.zeros_like(cache)), torch.tensor([1, slot, 2]))
    assert not cache.any()


@pytest.mark.parametrize("write", _WRITERS)
def test_writes_refuse_by_name(write: Callable[..., None], cache: torch.Tensor) -> None:
    (key, value), caches = _tokens(3), (cache, torch.zeros_like(cache))
    with pytest.raises(RuntimeError, match=r"(indices|slot_\w+) is torch.float32: it must be int32 or int64"):
        write(key, value, caches, _SLOTS.float())
    with pytest.raises(RuntimeError, match=r"(updates|key) is torch.float64"):
        write(key.double(), value.double(), caches, _SLOTS)
    with pytest.raises(RuntimeError, match=r"(updates|key) is of shape"):
        write(key, value, caches, _SLOTS[:2])


def test_writers_refuse_what_only_they_are_told(cache: torch.Tensor) -> None:
    key, value = _tokens(3)
    with pytest.raises(RuntimeError, match=r"slot_indices is of shape \[3, 1\]"):
        _reshape(key, value, (cache, cache), _SLOTS.view(-1, 1))
    with pytest.raises(RuntimeError, match="key_cache is of shape"):
        _reshape(key, value, (cache.flatten(2), cache), _SLOTS)
    with pytest.raises(RuntimeError, match=r"indices is of shape \[3\]"):
        npu_scatter_nd_update_(cache.view(-1, 2, 8), _SLOTS, key)
    with pytest.raises(RuntimeError, match=r"input is of shape \[1, 1, 1, 1, 1, 1, 1, 1, 1\]"):
        npu_scatter_nd_update_(torch.zeros((1,) * 9), torch.tensor([[0]]), torch.zeros((1,) * 9))
    with pytest.raises(RuntimeError, match=r"input is torch.int32: it must be one of"):
        npu_scatter_nd_update_(torch.zeros(3, dtype=torch.int32), torch.tensor([[0]]), torch.ones(1, dtype=torch.int32))
    with pytest.raises(RuntimeError, match=r"value is torch.float64: key is torch.float32"):
        npu_scatter_pa_kv_cache(key, value.double(), cache, cache.double(), _SLOTS, cache_mode="Norm")
    with pytest.raises(RuntimeError, match=r"value is of shape \[3, 1, 16\]: key is \[3, 2, 8\]"):
        npu_scatter_pa_kv_cache(key, value.view(3, 1, 16), cache, cache.view(4, 16, 1, 16), _SLOTS, cache_mode="Norm")
    with pytest.raises(RuntimeError, match="cache_mode is ND: it must be one of"):
        npu_scatter_pa_kv_cache(key, value, cache, cache, _SLOTS, cache_mode="ND")
    with pytest.raises(
        RuntimeError, match=r"key_cache is of shape \[4, 16, 2, 8\]: it must be \(pages, heads \* D / 16"
    ):
        npu_scatter_pa_kv_cache(key, value, cache, cache, _SLOTS)
    with pytest.raises(
        RuntimeError, match=r"key is of shape \[3, 2, 8\]: it must be \[3, heads, D\] with heads \* D of 32"
    ):
        npu_scatter_pa_kv_cache(key, value, cache.view(2, 2, 16, 16), cache.view(2, 2, 16, 16), _SLOTS)
    with pytest.raises(NotImplementedError, match="seq_lens = "):
        npu_scatter_pa_kv_cache(key, value, cache, cache, _SLOTS, cache_mode="Norm", seq_lens=_SLOTS)


def test_in_nz_each_tile_of_a_row_lies_beside_that_of_the_next_slot() -> None:
    key, value = torch.arange(3 * 2 * 24).view(3, 2, 24).float(), -torch.arange(3 * 2 * 8).view(3, 2, 8).float()
    caches, events = (torch.zeros(4, 3, 16, 16), torch.zeros(4, 1, 16, 16)), _Events()
    with listening(events):
        npu_scatter_pa_kv_cache(key, value, *caches, _SLOTS)
    assert all(isinstance(event, CacheWrite) and event.slots.tolist() == [17, 3, 63] for event in events.heard)
    assert [event.cache for event in events.heard] == [cache.data_ptr() for cache in caches]
    for cache, rows in zip(caches, (key, value), strict=True):
        expected = torch.zeros_like(cache)
        for slot, row in zip(_SLOTS.tolist(), rows, strict=True):
            for place, number in enumerate(row.flatten().tolist()):
                expected[slot // 16, place // 16, slot % 16, place % 16] = number
        assert torch.equal(cache, expected)


@pytest.mark.parametrize("slot", [-1, 64])
def test_a_slot_outside_a_cache_in_nz_stops_the_device(slot: int) -> None:
    cache, rows = torch.zeros(4, 1, 16, 16), torch.ones(2, 1, 16)
    with pytest.raises(DeviceFault, match=f"has {slot}, but there are 64 places"):
        npu_scatter_pa_kv_cache(rows, rows, cache, cache.clone(), torch.tensor([1, slot]))
    assert not cache.any()


def test_scattered_tiles_are_announced_and_name_the_slots_whose_rows_are_whole() -> None:
    """As a pool of sglang writes rows of 32 numbers into pages of 16: slots 17 and 3, and of slot 5 one tile only."""
    heard: list[Event] = []
    cache = torch.zeros(2 * 2 * 16, 16)
    tiles = torch.tensor([[32 + 1], [32 + 16 + 1], [3], [16 + 3], [5]])
    with listening(heard.append):
        npu_scatter_nd_update_(cache, tiles, torch.ones(5, 16))
    (event,) = heard
    assert isinstance(event, TileWrite)
    write = event.slots(tiles_per_row=2, page_size=16)
    assert (write.cache, write.slots.tolist()) == (cache.data_ptr(), [17, 3])
    assert TileWrite("", 0, np.array([-1, 15])).slots(1, 16).slots.tolist() == [-1, 15]


def test_scattering_to_what_is_no_cache_is_not_announced() -> None:
    events, table = _Events(), torch.zeros(3, 4, dtype=torch.int64)
    with listening(events):
        npu_scatter_nd_update_(table, torch.tensor([[0, 1], [2, 3]]), torch.tensor([5, 6]))
    assert table.tolist() == [[0, 5, 0, 0], [0, 0, 0, 0], [0, 0, 0, 6]]
    assert events.heard == []


@pytest.mark.parametrize("page", [-1, 1000])
def test_a_page_outside_the_cache_stops_the_device(small: Batch, page: int) -> None:
    table = small.table.clone()
    table[1, 0] = page
    with pytest.raises(DeviceFault, match=rf"507015, aicore exception.*block_table\[1\] has page {page}"):
        npu_fused_infer_attention_score(**small.fused(block_table=table))


def test_pages_beyond_a_length_are_not_looked_at(small: Batch) -> None:
    table = small.table.clone()
    table[1, 1:] = 1000
    found, _ = npu_fused_infer_attention_score(**small.fused(block_table=table))
    _agree(found, small.reference(causally))


def test_a_table_that_is_too_narrow_stops_the_device_for_good(small: Batch, cache: torch.Tensor) -> None:
    narrow = r"actual_seq_lengths_kv\[0\] is 20, but block_table has 1 columns of 16 positions"
    with pytest.raises(DeviceFault, match=narrow):
        npu_fused_infer_attention_score(**small.fused(block_table=small.table[:, :1]))
    unusable = "context is unusable since an aicore exception in npu_fused_infer_attention_score: "
    later: list[Callable[[], Any]] = [
        lambda: npu_fused_infer_attention_score(**small.fused()),
        lambda: npu_fused_infer_attention_score.out(**small.fused(), out=[]),
        lambda: npu_fused_infer_attention_score.default(**small.fused()),
        lambda: _npu_flash_attention_qlens(**small.qlens()),
        lambda: _npu_fused_infer_attention_score_get_max_workspace(**small.fused()),
        lambda: _reshape(*_tokens(3), (cache, cache), _SLOTS),
        lambda: npu_scatter_nd_update_(cache, _SLOTS, cache),
    ]
    for call in later:
        with pytest.raises(DeviceFault, match=unusable):
            call()
    fault.reset()
    npu_fused_infer_attention_score(**small.fused())


def test_an_exact_table_is_wide_enough() -> None:
    batch = _batch((1,), (32,))
    found, _ = npu_fused_infer_attention_score(**batch.padded(block_table=batch.table[:, :2]))
    _agree(found, batch.reference(everything))
    with pytest.raises(DeviceFault, match=r"context_lens\[0\] is 33"):
        _npu_paged_attention(**batch.single(context_lens=torch.tensor([33]), block_table=batch.table[:, :2]))


_OBSERVE_INSTALLED = """
import json
import torch
from harness.npu import install

install()
import torch_npu

names = [
    "npu_fused_infer_attention_score",
    "npu_fused_infer_attention_score_v2",
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_flash_attention_qlens",
    "_npu_paged_attention",
    "_npu_reshape_and_cache",
    "npu_scatter_pa_kv_cache",
    "npu_scatter_nd_update_",
]
seen = {name: getattr(torch_npu, name) is getattr(torch.ops.npu, name).default for name in names}
cache = torch.zeros(32, 1, 64, device="npu")
slots = torch.arange(20, device="npu").view(-1, 1)
with torch.device("npu"):
    torch_npu.npu_scatter_nd_update_(cache, slots, torch.ones(20, 1, 64))
    output, _ = torch.ops.npu.npu_fused_infer_attention_score(
        torch.ones(2, 2, 64), cache.view(2, 16, 64), cache.view(2, 16, 64), num_heads=2, num_key_value_heads=1,
        input_layout="TND", block_size=16, block_table=torch.tensor([[0, 1]], dtype=torch.int32),
        actual_seq_lengths=[2], actual_seq_lengths_kv=[20], sparse_mode=3,
        atten_mask=torch.ones(2048, 2048, dtype=torch.bool).triu(1),
    )
seen["ones"] = bool(torch.allclose(output.cpu(), torch.ones(2, 2, 64)))
print(json.dumps(seen))
"""


def test_sglang_reaches_them_as_attributes_of_torch_npu_and_of_torch_ops() -> None:
    command = [sys.executable, "-c", _OBSERVE_INSTALLED]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert len(seen) == 9
    assert all(seen.values()), seen
