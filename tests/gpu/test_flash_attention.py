"""The emulated FlashAttention: it is dense attention over pages, and refuses what would read past its memory."""

from typing import Any

import pytest
import torch

from harness.gpu.flash_attention import flash_attn_with_kvcache
from harness.gpu.schedule import get_scheduler_metadata

HEADS, KV_HEADS, SIZE, PAGE, PAGES = 4, 2, 16, 4, 9
COUNTS, LENGTHS = (2, 3), (5, 7)


def random(*shape: int) -> torch.Tensor:
    """Fixed numbers for each shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def ints(*values: Any) -> torch.Tensor:
    """An int32 tensor."""
    return torch.tensor(values, dtype=torch.int32)


def call(**changed: Any) -> dict[str, Any]:
    """A right call of two requests, of 2 and 3 query rows and 5 and 7 positions, with what is `changed`."""
    return {
        "q": random(5, HEADS, SIZE),
        "k_cache": random(PAGES, PAGE, KV_HEADS, SIZE),
        "v_cache": random(PAGES, PAGE, KV_HEADS, SIZE) + 1,
        "page_table": ints([3, 8], [0, 5]),
        "cache_seqlens": ints(*LENGTHS),
        "cu_seqlens_q": ints(0, 2, 5),
        "max_seqlen_q": 3,
        "causal": True,
        **changed,
    }


def dense(arguments: dict[str, Any], request: int, query: int, head: int, seen: range) -> torch.Tensor:
    """One row of one head in float64, of the positions `seen`, each looked up by itself."""
    places = [(int(arguments["page_table"][request, at // PAGE]), at % PAGE) for at in seen]
    own = head // (HEADS // KV_HEADS)
    keys = torch.stack([arguments["k_cache"][page, slot, own] for page, slot in places]).double()
    values = torch.stack([arguments["v_cache"][page, slot, own] for page, slot in places]).double()
    scores = keys @ arguments["q"][query, head].double() * SIZE**-0.5
    if arguments.get("sinks") is not None:
        scores = torch.cat([scores, arguments["sinks"][head : head + 1].double()])
        values = torch.cat([values, torch.zeros(1, SIZE).double()])
    return scores.softmax(dim=0) @ values


@pytest.mark.parametrize("sinks", [None, torch.tensor([0.5, -1.0, 2.0, 0.0])])
@pytest.mark.parametrize(
    ("causal", "window", "before", "after"),
    [(True, (-1, -1), 99, 0), (False, (-1, -1), 99, 99), (True, (2, 0), 2, 0), (False, (1, 1), 1, 1)],
)
def test_every_row_is_dense_attention_to_the_positions_around_its_own(
    causal: bool, window: tuple[int, int], before: int, after: int, sinks: torch.Tensor | None
) -> None:
    arguments = call(causal=causal, window_size=window, sinks=sinks)
    output = flash_attn_with_kvcache(**arguments)
    query = 0
    for request, (count, length) in enumerate(zip(COUNTS, LENGTHS, strict=True)):
        for position in range(length - count, length):
            seen = range(max(0, position - before), min(length, position + after + 1))
            for head in range(HEADS):
                right = dense(arguments, request, query, head, seen)
                assert torch.allclose(output[query, head].double(), right, atol=1e-6)
            query += 1
    assert query == len(output)


def test_the_causal_mask_is_aligned_to_the_last_key_and_not_to_the_first() -> None:
    arguments = call()
    output = flash_attn_with_kvcache(**arguments)
    aligned_to_the_first = dense(arguments, 0, 0, 0, range(1))
    assert not torch.allclose(output[0, 0].double(), aligned_to_the_first, atol=0.01)
    assert torch.allclose(output[0, 0].double(), dense(arguments, 0, 0, 0, range(4)), atol=1e-6)


def test_a_row_that_sees_nothing_is_zero_and_one_after_the_last_request_is_not_written() -> None:
    output = flash_attn_with_kvcache(**call(cache_seqlens=ints(1, 0), cu_seqlens_q=ints(0, 2, 4)))
    assert output[0].eq(0).all() and output[2:4].eq(0).all()
    assert output[1].abs().min() > 0
    assert output[4].isnan().all()


def test_what_no_length_reaches_in_a_table_is_not_looked_at() -> None:
    table = ints([3, 8, 10_000], [0, 5, -1])
    assert torch.equal(flash_attn_with_kvcache(**call(page_table=table)), flash_attn_with_kvcache(**call()))


def test_half_precision_comes_back_as_it_was_given() -> None:
    halves = {name: call()[name].half() for name in ("q", "k_cache", "v_cache")}
    output = flash_attn_with_kvcache(**call(**halves))
    assert output.dtype == torch.float16
    assert torch.allclose(output.float(), flash_attn_with_kvcache(**call()), atol=0.01)


def test_a_plan_for_the_lengths_of_the_call_is_taken() -> None:
    plan = get_scheduler_metadata(batch_size=2, max_seqlen_q=1, cache_seqlens=ints(*LENGTHS), headdim=SIZE)
    assert (plan.dtype, len(plan)) == (torch.int32, 17)
    assert torch.equal(flash_attn_with_kvcache(**call(scheduler_metadata=plan)), flash_attn_with_kvcache(**call()))


def stale() -> torch.Tensor:
    """A plan for a shorter second request."""
    return get_scheduler_metadata(batch_size=2, max_seqlen_q=1, cache_seqlens=ints(5, 6))


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"page_table": ints([3, 9], [0, 5])}, r"page_table\[0, 1\] is 9: the cache has pages 0 to 8"),
        ({"page_table": ints([3, 8], [-1, 5])}, r"page_table\[1, 0\] is -1"),
        ({"cache_seqlens": ints(5, 9)}, r"cache_seqlens\[1\] is 9: the page table of 2 pages of 4 reaches 8 positions"),
        ({"cache_seqlens": ints(-1, 7)}, r"cache_seqlens\[0\] is -1: a length must not be negative"),
        ({"cache_seqlens": torch.tensor([5, 7])}, "cache_seqlens is torch.int64: it must be torch.int32"),
        ({"cache_seqlens": ints(5, 7, 7)}, r"cache_seqlens is of shape \[3\]: it must be \[2\]"),
        ({"page_table": torch.tensor([[3, 8], [0, 5]])}, "page_table is torch.int64"),
        ({"page_table": ints([3, 0, 8, 0], [0, 0, 5, 0])[:, ::2]}, "page_table is of stride 2"),
        ({"page_table": ints([3, 8])}, r"page_table is of shape \[1, 2\]"),
        ({"cu_seqlens_q": ints(1, 2, 5)}, r"cu_seqlens_q is \[1, 2, 5\]: it must begin with 0"),
        ({"cu_seqlens_q": ints(0, 3, 2)}, r"cu_seqlens_q is \[0, 3, 2\]: it must not fall"),
        ({"cu_seqlens_q": ints(0, 2, 6)}, r"cu_seqlens_q is \[0, 2, 6\]: q has 5 rows"),
        ({"max_seqlen_q": 2}, "max_seqlen_q is 2: a request has 3 query rows"),
        ({"q": random(5, HEADS, SIZE).half()}, "k_cache is torch.float32: q is torch.float16"),
        ({"q": random(5, HEADS, SIZE).double()}, "q is torch.float64"),
        ({"q": random(5, 3, SIZE)}, "k_cache is of 2 heads: they must divide the 3 of q"),
        ({"q": random(5, HEADS, SIZE * 2)}, r"k_cache is of shape \[9, 4, 2, 16\]: q has heads of 32"),
        ({"q": random(1, 5, HEADS, SIZE)}, r"q is of shape \[1, 5, 4, 16\]"),
        ({"v_cache": random(PAGES, PAGE, 1, SIZE)}, r"v_cache is of shape \[9, 4, 1, 16\]"),
        ({"sinks": random(3)}, r"sinks is of shape \[3\]"),
        ({"page_table": ints([3, 8], [0, 5]).to("meta")}, "page_table is on meta: q lies on cpu"),
        ({"scheduler_metadata": stale()}, r"made for lengths \[5, 6\]: cache_seqlens is \[5, 7\]: the plan is stale"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_name_and_value(changed: dict[str, Any], says: str) -> None:
    flash_attn_with_kvcache(**call())
    with pytest.raises(RuntimeError, match=f"flash_attn_with_kvcache: .*{says}|flash_attn_with_kvcache: {says}"):
        flash_attn_with_kvcache(**call(**changed))


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"softcap": 30.0}, "softcap = 30.0"), ({"page_table": None}, "page_table = None"), ({"out": 1}, "out = 1")],
)
def test_what_is_not_emulated_says_so(changed: dict[str, Any], says: str) -> None:
    with pytest.raises(NotImplementedError, match=f"{says} is not emulated"):
        flash_attn_with_kvcache(**call(**changed))


def test_an_argument_that_the_kernel_does_not_have_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="there is no argument scale"):
        flash_attn_with_kvcache(**call(scale=1.0))
