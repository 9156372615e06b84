"""Calls of the emulated FlashInfer: two requests, of 2 and 3 query rows and 5 and 7 keys in a cache of single slots."""

from itertools import accumulate
from typing import Any

import torch

from harness.gpu.paged_wrapper import BatchDecodeWithPagedKVCacheWrapper, BatchPrefillWithPagedKVCacheWrapper

HEADS, KV_HEADS, SIZE, SLOTS = 4, 2, 16, 40
ROWS, LENGTHS = (2, 3), (5, 7)
WORKSPACE = torch.empty(16, dtype=torch.uint8)
#: Scattered, none twice.
PLACES = torch.tensor([31, 2, 17, 8, 39, 0, 22, 5, 13, 36, 28, 9], dtype=torch.int32)
DTYPES = {"q_data_type": torch.float32, "kv_data_type": torch.float32}


def random(*shape: int) -> torch.Tensor:
    """Fixed numbers for each shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def offsets(*counts: int) -> torch.Tensor:
    """Where each begins and the last one ends, int32."""
    return torch.tensor([0, *accumulate(counts)], dtype=torch.int32)


def queries(rows: int = sum(ROWS)) -> torch.Tensor:
    """Query rows."""
    return random(rows, HEADS, SIZE)


def cache() -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of every slot."""
    return random(SLOTS, KV_HEADS, SIZE), random(SLOTS, KV_HEADS, SIZE) + 1


def plan(**changed: Any) -> dict[str, Any]:
    """A right plan, with what is `changed`."""
    return {
        "qo_indptr": offsets(*ROWS),
        "paged_kv_indptr": offsets(*LENGTHS),
        "paged_kv_indices": PLACES.clone(),
        "paged_kv_last_page_len": torch.ones(2, dtype=torch.int32),
        "num_qo_heads": HEADS,
        "num_kv_heads": KV_HEADS,
        "head_dim_qk": SIZE,
        "page_size": 1,
        **DTYPES,
        **changed,
    }


def prefill(**changed: Any) -> BatchPrefillWithPagedKVCacheWrapper:
    """A wrapper with that plan."""
    wrapper = BatchPrefillWithPagedKVCacheWrapper(WORKSPACE, "NHD", backend="fa2")
    wrapper.begin_forward(**plan(**changed))
    return wrapper


def graph(requests: int = 2, mask_bytes: int = 0) -> BatchPrefillWithPagedKVCacheWrapper:
    """A wrapper of a graph with buffers for so many requests; nothing is planned yet."""
    masks: dict[str, Any] = {}
    if mask_bytes:
        masks["custom_mask_buf"] = torch.zeros(mask_bytes, dtype=torch.uint8)
        masks["mask_indptr_buf"] = offsets(*[0] * requests)
    return BatchPrefillWithPagedKVCacheWrapper(
        WORKSPACE,
        "NHD",
        backend="fa2",
        use_cuda_graph=True,
        qo_indptr_buf=offsets(*[0] * requests),
        paged_kv_indptr_buf=offsets(*[0] * requests),
        paged_kv_indices_buf=torch.zeros(20, dtype=torch.int32),
        paged_kv_last_page_len_buf=torch.ones(requests, dtype=torch.int32),
        **masks,
    )


def decode(**changed: Any) -> BatchDecodeWithPagedKVCacheWrapper:
    """A wrapper with a plan for a query of each request."""
    wrapper = BatchDecodeWithPagedKVCacheWrapper(WORKSPACE, "NHD", backend="fa2")
    arguments = {"indptr": offsets(*LENGTHS), "indices": PLACES, "last_page_len": torch.ones(2, dtype=torch.int32)}
    sizes = {"num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": SIZE, "page_size": 1}
    wrapper.begin_forward(**arguments | sizes | {"data_type": torch.float32, "q_data_type": torch.float32} | changed)
    return wrapper


def dense(q: torch.Tensor, query: int, head: int, places: list[int], soft_cap: float = 0.0) -> torch.Tensor:
    """One row of one head in float64, of the slots `places`, each looked up by itself."""
    keys, values = (whole[places, head // (HEADS // KV_HEADS)].double() for whole in cache())
    scores = keys @ q[query, head].double() * SIZE**-0.5
    if soft_cap:
        scores = soft_cap * (scores / soft_cap).tanh()
    return scores.softmax(dim=0) @ values


def places_of(request: int) -> list[int]:
    """The slots of one request."""
    bounds = offsets(*LENGTHS).tolist()
    return PLACES[bounds[request] : bounds[request + 1]].tolist()
