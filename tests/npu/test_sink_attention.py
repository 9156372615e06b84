"""The emulated kernels for attention with sinks, held to dense attention in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from harness.npu.boundary import AttentionRead, Event, listening
from harness.npu.registry import lookup
from harness.npu.sink_attention import attention_sinks_prefill_triton, attention_sinks_triton

HEADS, KV_HEADS, SIZE, PAGE, SCALE = 4, 2, 64, 16, 0.125
SINKS = torch.tensor([0.5, -1.0, 2.0, 0.0])
TABLE = torch.tensor([[3, 1, 5], [2, 4, 0]], dtype=torch.int32)
LENGTHS = (37, 9)


@pytest.fixture
def caches() -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of six pages, NaN wherever no request has a position."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(2):
        cache = torch.full((6, PAGE, KV_HEADS, SIZE), float("nan"), dtype=torch.float64)
        for row, length in enumerate(LENGTHS):
            for position in range(length):
                place = int(TABLE[row, position // PAGE]), position % PAGE
                cache[place] = torch.from_numpy(random.standard_normal((KV_HEADS, SIZE)))
        found.append(cache)
    return found[0], found[1]


def queries(rows: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(4).standard_normal((rows, HEADS * SIZE)))


def reference(
    caches: tuple[torch.Tensor, torch.Tensor], query: torch.Tensor, counts: tuple[int, ...], window: int
) -> np.ndarray:
    """One query and head at a time: the last `window` positions up to the query's own, and the sink."""
    key, value = (cache.numpy() for cache in caches)
    rows = query.view(-1, HEADS, SIZE).numpy()
    found, token = np.zeros_like(rows), 0
    for row, (count, length) in enumerate(zip(counts, LENGTHS, strict=True)):
        for own in range(length - count, length):
            first = 0 if window == -1 else max(0, own - window + 1)
            places = [(int(TABLE[row, n // PAGE]), n % PAGE) for n in range(first, own + 1)]
            for head in range(HEADS):
                kv_head = head * KV_HEADS // HEADS
                weights = np.exp([key[place][kv_head] @ rows[token, head] * SCALE for place in places])
                total = weights.sum() + np.exp(float(SINKS[head]))
                found[token, head] = sum(w / total * value[p][kv_head] for w, p in zip(weights, places, strict=True))
            token += 1
    return found


def decode(caches: tuple[torch.Tensor, torch.Tensor], query: torch.Tensor, **changes: Any) -> torch.Tensor:
    arguments = {"sinks": SINKS, "block_tables": TABLE, "context_lens": torch.tensor(LENGTHS)}
    named = {"scale": SCALE, "sliding_window_size": -1, "q_head_num": HEADS, "k_head_num": KV_HEADS}
    return attention_sinks_triton(query, *caches, **(arguments | named | changes))


@pytest.mark.parametrize("window", [-1, 1, 5, 100])
def test_decoding_sees_the_window_and_the_sink(caches: tuple[torch.Tensor, torch.Tensor], window: int) -> None:
    query = queries(2)
    found = decode(caches, query, sliding_window_size=window)

    np.testing.assert_allclose(found.view(2, HEADS, SIZE), reference(caches, query, (1, 1), window), atol=1e-12)


@pytest.mark.parametrize("window", [-1, 1, 5, 100])
def test_extending_counts_each_window_from_its_own_query(
    caches: tuple[torch.Tensor, torch.Tensor], window: int
) -> None:
    query, counts = queries(12), (5, 7)
    found = attention_sinks_prefill_triton(
        query,
        *caches,
        SINKS,
        torch.tensor(counts),
        TABLE,
        torch.tensor(LENGTHS),
        SCALE,
        window,
        HEADS,
        KV_HEADS,
    )

    np.testing.assert_allclose(found.view(12, HEADS, SIZE), reference(caches, query, counts, window), atol=1e-12)


def test_both_caches_are_announced_with_the_lengths(caches: tuple[torch.Tensor, torch.Tensor]) -> None:
    heard = list[Event]()
    with listening(heard.append):
        decode(caches, queries(2))

    assert [event.cache for event in heard] == [cache.data_ptr() for cache in caches]
    assert all(isinstance(event, AttentionRead) and event.kv_lengths == LENGTHS for event in heard)


def test_what_lies_past_the_table_is_not_read(caches: tuple[torch.Tensor, torch.Tensor]) -> None:
    heard = list[Event]()
    with listening(heard.append):
        decode(caches, queries(2), block_tables=TABLE[:, :2].contiguous())

    assert [event.kv_lengths for event in heard if isinstance(event, AttentionRead)] == [(32, 9)] * 2


REFUSALS: list[tuple[str, dict[str, Any]]] = [
    ("sinks is None", {"sinks": None}),
    (r"sinks is of shape \[2\]", {"sinks": SINKS[:2]}),
    ("k_head_num is 3: it must divide", {"k_head_num": 3}),
    (r"k_cache is of shape .*k_head_num 1", {"k_head_num": 1}),
    ("block_table is torch.int64", {"block_tables": TABLE.long()}),
    (r"context_lens is \[37\]: there must be 2", {"context_lens": torch.tensor([37])}),
]


@pytest.mark.parametrize(("text", "change"), REFUSALS, ids=[text for text, _ in REFUSALS])
def test_wrong_arguments_are_refused_by_name(
    caches: tuple[torch.Tensor, torch.Tensor], text: str, change: dict[str, Any]
) -> None:
    with pytest.raises(RuntimeError, match=text):
        decode(caches, queries(2), **change)


def test_new_tokens_add_up_to_the_queries(caches: tuple[torch.Tensor, torch.Tensor]) -> None:
    tail = (TABLE, torch.tensor(LENGTHS), SCALE, -1, HEADS, KV_HEADS)
    with pytest.raises(RuntimeError, match=r"seq_lens is \[1, 2\]: the sum must be query's tokens, 2"):
        attention_sinks_prefill_triton(queries(2), *caches, SINKS, torch.tensor([1, 2]), *tail)


@pytest.mark.parametrize("kernel", [attention_sinks_triton, attention_sinks_prefill_triton], ids=lambda k: k.__name__)
def test_sglang_finds_the_kernels_where_it_imports_them(kernel: Callable[..., Any]) -> None:
    assert lookup(f"sgl_kernel_npu.attention.sinks_attention.{kernel.__name__}") is kernel
