"""The emulated FlashInfer: it is dense attention over slots, and refuses what is stale or leads out of its memory."""

from functools import partial
from typing import Any

import pytest
import torch

from harness.gpu.on_host import OnHost
from harness.gpu.paged_wrapper import BatchPrefillWithPagedKVCacheWrapper, fast_decode_plan
from harness.gpu.ragged_wrapper import BatchPrefillWithRaggedKVCacheWrapper, merge_state
from tests.gpu.planned import (
    DTYPES,
    HEADS,
    KV_HEADS,
    LENGTHS,
    PLACES,
    ROWS,
    SIZE,
    WORKSPACE,
    cache,
    decode,
    dense,
    graph,
    offsets,
    places_of,
    plan,
    prefill,
    queries,
    random,
)


def mask(hidden: tuple[int, int, int] | None = None) -> torch.Tensor:
    """A causal mask of both requests, flat; `hidden` is a request, a query and a position that it does not see."""
    parts = [torch.ones(n, k, dtype=torch.bool).tril(k - n) for n, k in zip(ROWS, LENGTHS, strict=True)]
    if hidden is not None:
        parts[hidden[0]][hidden[1], hidden[2]] = False
    return torch.cat([part.flatten() for part in parts])


def require_dense(output: torch.Tensor, causal: bool, soft_cap: float = 0.0) -> None:
    """Compare every row of both requests with float64."""
    q, query = queries(), 0
    for request, (count, length) in enumerate(zip(ROWS, LENGTHS, strict=True)):
        for position in range(length - count, length):
            places = places_of(request)[: position + 1 if causal else length]
            for head in range(HEADS):
                right = dense(q, query, head, places, soft_cap)
                assert torch.allclose(output[query, head].double(), right, atol=1e-6)
            query += 1
    assert query == len(output)


@pytest.mark.parametrize("soft_cap", [0.0, 2.0])
@pytest.mark.parametrize("causal", [True, False])
def test_every_row_of_a_prefill_is_dense_attention_to_its_slots_causal_from_the_last_key(
    causal: bool, soft_cap: float
) -> None:
    output = prefill().forward(queries(), cache(), causal=causal, logits_soft_cap=soft_cap)
    require_dense(output, causal, soft_cap)


def test_a_row_of_a_decode_is_dense_attention_to_all_slots_of_its_request() -> None:
    q = queries(2)
    output = decode().forward(q, cache())
    for request in range(2):
        for head in range(HEADS):
            right = dense(q, request, head, places_of(request))
            assert torch.allclose(output[request, head].double(), right, atol=1e-6)


def test_a_custom_mask_has_the_say_over_causal_and_begins_anew_with_each_request() -> None:
    """10 and 21 bits: the second request's begin in the third byte."""
    output = prefill(custom_mask=mask()).forward(queries(), cache(), causal=False)
    require_dense(output, causal=True)


def test_a_position_that_a_mask_hides_is_not_seen_by_that_query_alone() -> None:
    output = prefill(custom_mask=mask((1, 2, 0))).forward(queries(), cache())
    right = prefill().forward(queries(), cache(), causal=True)
    assert torch.equal(output[:4], right[:4])
    assert torch.allclose(output[4, 0].double(), dense(queries(), 4, 0, places_of(1)[1:]), atol=1e-6)


def test_a_graph_reads_its_buffers_when_it_runs_with_a_mask_too() -> None:
    wrapper = graph(mask_bytes=8)
    wrapper.begin_forward(**plan(custom_mask=mask((0, 0, 0))))
    other = wrapper.forward(queries(), cache())
    wrapper.begin_forward(**plan(custom_mask=mask()))
    require_dense(wrapper.forward(queries(), cache()), causal=True)
    assert not torch.allclose(other[0], wrapper.forward(queries(), cache())[0], atol=0.01)
    wrapper._paged_kv_indices_buf[0] = 3
    assert not torch.equal(wrapper.forward(queries(), cache())[0], other[0])


def test_a_graph_with_a_buffer_for_a_mask_and_no_mask_in_the_plan_reads_what_is_there() -> None:
    wrapper = graph(mask_bytes=8)
    wrapper.begin_forward(**plan())
    with pytest.raises(RuntimeError, match=r"mask_indptr\[0 : 2\] is \[0, 0\]: 2 queries of 5 keys take 2 bytes"):
        wrapper.forward(queries(), cache(), causal=True)


def test_a_request_of_a_graph_that_was_planned_too_short_is_nan_and_no_other() -> None:
    wrapper = graph()
    wrapper.begin_forward(**plan())
    wrapper._paged_kv_indptr_buf.copy_(offsets(5, 8))
    output = wrapper.forward(queries(), cache(), causal=True)
    assert output[2:].isnan().all() and not output[:2].isnan().any()


def test_a_fast_plan_of_a_decode_takes_host_offsets_and_leaves_the_buffers_alone() -> None:
    wrapper = decode()
    wrapper.begin_forward = partial(fast_decode_plan, wrapper)
    sizes = (HEADS, KV_HEADS, SIZE, 1)
    dtypes = {"data_type": torch.float32, "q_data_type": torch.float32}
    ones = torch.ones(2, dtype=torch.int32)
    wrapper.begin_forward(offsets(1, 1), PLACES, ones, *sizes, **dtypes, global_override_indptr_cpu=offsets(*LENGTHS))
    assert torch.equal(wrapper.forward(queries(2), cache()), decode().forward(queries(2), cache()))


def ragged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of the second request's rows to keys side by side."""
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD", backend="auto")
    wrapper.begin_forward(offsets(len(q)), offsets(len(k)), HEADS, KV_HEADS, SIZE, q_data_type=q.dtype)
    return wrapper.forward_return_lse(q, k, v, **options)


def test_new_keys_side_by_side_and_those_of_the_cache_merge_to_attention_to_both() -> None:
    whole = prefill().forward(queries(), cache(), causal=True)
    places, q = places_of(1), queries()[2:]
    new, old = (torch.tensor(part) for part in (places[4:], places[:4]))
    keys, values = cache()
    first, second = ragged(q, keys[new], values[new], causal=True), ragged(q, keys[old], values[old])
    merged, _ = merge_state(*first, *second)
    assert torch.allclose(merged, whole[2:], atol=1e-6)


def test_the_side_that_has_seen_nothing_has_no_share() -> None:
    q, (keys, values) = queries(), cache()
    seen = ragged(q, keys[:6], values[:6])
    nothing = ragged(q, keys[:0], values[:0])
    assert nothing[1].eq(float("-inf")).all()
    assert torch.allclose(merge_state(*seen, *nothing)[0], seen[0], atol=1e-6)
    assert merge_state(*nothing, *nothing)[0].eq(0).all()


def test_half_precision_comes_back_as_it_was_given() -> None:
    wrapper = prefill(q_data_type=torch.float16, kv_data_type=torch.float16)
    output = wrapper.forward(queries().half(), tuple(part.half() for part in cache()), causal=True)
    assert output.dtype == torch.float16
    assert torch.allclose(output.float(), prefill().forward(queries(), cache(), causal=True), atol=0.01)


def changed_places(place: int, slot: int) -> torch.Tensor:
    """The slots with one of them replaced."""
    places = PLACES.clone()
    places[place] = slot
    return places


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"paged_kv_indices": changed_places(3, 40)}, r"kv_indices\[3\] is 40: the cache has slots 0 to 39"),
        ({"paged_kv_indices": changed_places(11, -1)}, r"kv_indices\[11\] is -1"),
        ({"paged_kv_indices": PLACES[:11]}, r"kv_indptr\[-1\] is 12: kv_indices has 11 slots"),
        ({"paged_kv_indices": PLACES.long()}, "kv_indices is torch.int64: it must be torch.int32"),
        ({"paged_kv_indices": PLACES.to("meta")}, "kv_indices is on meta: kv_indptr lies on cpu"),
        (
            {"paged_kv_indptr": torch.tensor([0, 5, 3], dtype=torch.int32)},
            r"kv_indptr is \[0, 5, 3\]: it must not fall",
        ),
        ({"paged_kv_indptr": torch.tensor([1, 5, 9], dtype=torch.int32)}, r"kv_indptr is \[1, 5, 9\]: it must begin"),
        ({"paged_kv_indptr": torch.tensor([0, 5, 12])}, "kv_indptr is torch.int64"),
        ({"qo_indptr": offsets(2, 2, 1)}, r"qo_indptr is of shape \[4\]: it must be \[3\]"),
        ({"qo_indptr": offsets(2, 4)}, r"q is of shape \[5, 4, 16\]: the plan is for \[6, 4, 16\]"),
        ({"paged_kv_last_page_len": torch.tensor([1, 2], dtype=torch.int32)}, r"last_page_len is \[1, 2\]: a page has"),
        ({"num_qo_heads": 2}, r"q is of shape \[5, 4, 16\]: the plan is for \[5, 2, 16\]"),
        ({"num_kv_heads": 4}, r"k is of shape \[40, 2, 16\]: the plan is for 4 heads of 16"),
        ({"q_data_type": torch.float16}, "q is torch.float32: the plan is for torch.float16"),
        ({"kv_data_type": torch.float16}, "k is torch.float32: the plan is for torch.float16"),
        ({"custom_mask": mask()[:-1]}, "custom_mask is of 30 bits: 31 pairs of queries and keys are planned"),
        ({"custom_mask": mask().float()}, "custom_mask is torch.float32: it must be bool or uint8"),
    ],
)
def test_a_wrong_plan_is_refused_with_its_name_and_value(changed: dict[str, Any], says: str) -> None:
    prefill().forward(queries(), cache())
    with pytest.raises(RuntimeError, match=says):
        prefill(**changed).forward(queries(), cache())


def test_a_plan_whose_offsets_were_written_to_afterwards_is_stale() -> None:
    indptr = offsets(*LENGTHS)
    wrapper = prefill(paged_kv_indptr=indptr)
    indptr.copy_(offsets(5, 6))
    rule = r"the plan is for lengths \[5, 7\]: the buffers have lengths \[5, 6\]: the plan is stale"
    with pytest.raises(RuntimeError, match=rule):
        wrapper.forward(queries(), cache())


def test_query_rows_that_were_written_to_after_the_plan_are_refused() -> None:
    wrapper = graph()
    wrapper.begin_forward(**plan())
    wrapper._qo_indptr_buf.copy_(offsets(1, 4))
    with pytest.raises(RuntimeError, match=r"the plan is for query rows \[2, 3\]: there are \[1, 4\]"):
        wrapper.forward(queries(), cache())


@pytest.mark.parametrize(
    ("wrapper", "changed", "says"),
    [
        (graph(3), {}, "last_page_len is of 2 requests: the graph has 3"),
        (graph(), {"paged_kv_indices": random(21).int()}, "kv_indices is of 21 slots: the buffer of the graph has 20"),
        (graph(), {"custom_mask": mask()}, "custom_mask is of 5 bytes: the graph was made with a buffer of 0 bytes"),
        (graph(mask_bytes=4), {"custom_mask": mask()}, "with a buffer of 4 bytes"),
    ],
)
def test_what_a_graph_has_no_room_for_is_refused(
    wrapper: BatchPrefillWithPagedKVCacheWrapper, changed: dict[str, Any], says: str
) -> None:
    with pytest.raises(RuntimeError, match=says):
        wrapper.begin_forward(**plan(**changed))


def test_a_run_without_a_plan_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="nothing is planned: call plan before a run"):
        graph().forward(queries(), cache())


@pytest.mark.parametrize(
    ("changed", "options", "says"),
    [
        ({"page_size": 16}, {}, "page_size = 16"),
        ({"window_left": 5}, {}, "window_left = 5"),
        ({}, {"window_left": 5}, "window_left = 5"),
        ({}, {"k_scale": 2.0}, "k_scale = 2.0"),
    ],
)
def test_what_is_not_emulated_says_so(changed: dict[str, Any], options: dict[str, Any], says: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{says} is not emulated"):
        prefill(**changed).forward(queries(), cache(), **options)


def test_an_argument_that_a_wrapper_does_not_have_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="there is no argument scale"):
        prefill().forward(queries(), cache(), scale=1.0)


def test_keys_that_lie_side_by_side_are_as_many_as_planned() -> None:
    wrapper = BatchPrefillWithRaggedKVCacheWrapper(WORKSPACE, "NHD", backend="auto")
    wrapper.begin_forward(offsets(5), offsets(7), HEADS, KV_HEADS, SIZE, q_data_type=DTYPES["q_data_type"])
    keys, values = cache()
    with pytest.raises(RuntimeError, match=r"kv_indptr\[-1\] is 7: k has 6 rows"):
        wrapper.forward(queries(), keys[:6], values[:6])


def test_states_of_other_shapes_do_not_merge() -> None:
    output, sums = torch.zeros(3, HEADS, SIZE), torch.zeros(3, HEADS)
    with pytest.raises(RuntimeError, match=r"merge_state: s_b is of shape \[3, 2\]: it must be \[3, 4\]"):
        merge_state(output, sums, output, sums[:, :2])
    with pytest.raises(RuntimeError, match=r"merge_state: v_b is torch\.float16: v_a is torch\.float32"):
        merge_state(output, sums, output.half(), sums)


def test_what_is_made_on_a_gpu_by_name_lies_on_the_cpu_while_the_mode_is_entered() -> None:
    with OnHost():
        assert torch.empty(2, device="cuda").device.type == "cpu"
        assert torch.empty(2, device=torch.device("cuda", 0)).device.type == "cpu"
        assert torch.empty(2, device="meta").device.type == "meta"
