"""FlashAttention 3's attention over a paged KV cache in plain torch: what it computes, and what it must not be given.

Semantics are those that the public interface documents (`flash_attn_with_kvcache` of flash-attention's `hopper` folder
and of sgl_kernel, as sglang 0.5.15 to 0.5.23 calls it through `flash_attention_v3.py`): a causal mask is aligned to the
bottom right corner, a window is (left, right) around it, both inclusive, and a row that sees nothing is zero.
"""

from itertools import pairwise
from typing import Any

import torch

from harness.gpu.dense import Sight, attend
from harness.gpu.refusal import Refusal
from harness.gpu.schedule import require_fresh

_KERNEL = Refusal("flash_attn_with_kvcache")
# Assumption: float32 is accepted, so that results can be compared closely. Source: the kernels are built for float16,
# bfloat16 and float8 alone. On a GPU: the subject runs in float16.
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_LARGEST_HEAD = 256
#: Arguments that are not emulated, with the values that ask for nothing.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("k", "v", "qv", "rotary_cos", "rotary_sin", "cache_batch_idx", "cache_leftpad"), (None,)),
    **dict.fromkeys(("rotary_seqlens", "q_descale", "k_descale", "v_descale", "pack_gqa", "out"), (None,)),
    "attention_chunk": (None, 0),
    "softcap": (0.0, None),
    "sm_margin": (0,),
    "only_qv": (False,),
    "return_softmax_lse": (False,),
}


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: Any = None,
    v: Any = None,
    qv: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: torch.Tensor | None = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    page_table: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    rotary_seqlens: Any = None,
    q_descale: Any = None,
    k_descale: Any = None,
    v_descale: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    attention_chunk: int | None = None,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 0,
    pack_gqa: Any = None,
    sinks: torch.Tensor | None = None,
    **options: Any,
) -> torch.Tensor:
    """Attention of the query rows of a batch to the first `cache_seqlens` positions of each request.

    `q` is (rows, heads, head size), the caches (pages, page size, KV heads, head size), all of one type; `page_table`
    (batch, width), `cache_seqlens` (batch,) and `cu_seqlens_q` (batch + 1,) are int32; `sinks` is (heads,). Returns a
    tensor like `q`; rows after the last request, which the kernel does not write, are NaN. `cu_seqlens_k_new` is about
    new keys, of which there are none, `num_splits` about speed. Raises RuntimeError where an argument is wrong, and
    NotImplementedError for what is not emulated.
    """
    others = {"k": k, "v": v, "qv": qv, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
    others |= {"cache_batch_idx": cache_batch_idx, "cache_leftpad": cache_leftpad, "rotary_seqlens": rotary_seqlens}
    others |= {"q_descale": q_descale, "k_descale": k_descale, "v_descale": v_descale, "softcap": softcap}
    _KERNEL.require_neutral(others | {"attention_chunk": attention_chunk, "pack_gqa": pack_gqa} | options, _NEUTRAL)
    _require_caches(q, k_cache, v_cache, sinks)
    given = {"page_table": page_table, "cache_seqlens": cache_seqlens, "cu_seqlens_q": cu_seqlens_q}
    for name, tensor in given.items():
        if tensor is None:
            raise NotImplementedError(f"{_KERNEL.kernel}: {name} = None is not emulated (see harness/gpu)")
    assert page_table is not None and cache_seqlens is not None and cu_seqlens_q is not None
    tensors = {"q": q, "k_cache": k_cache, "v_cache": v_cache, **given, "sinks": sinks, "plan": scheduler_metadata}
    _KERNEL.require_one_device(tensors)
    ends = _query_ends(cu_seqlens_q, len(q), max_seqlen_q)
    lengths = _lengths(cache_seqlens, page_table, len(ends), k_cache)
    if scheduler_metadata is not None:
        require_fresh(_KERNEL, scheduler_metadata, cache_seqlens)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    sight = Sight(window_size[0], 0 if causal else window_size[1])
    output = torch.full_like(q, float("nan"))
    start = 0
    for pages, length, end in zip(page_table, lengths, ends, strict=True):
        own = pages[: -(-length // k_cache.shape[1])].long()
        keys, values = (cache[own].flatten(0, 1)[:length].float() for cache in (k_cache, v_cache))
        seen = sight.mask(end - start, length)
        output[start:end], _ = attend(q[start:end].float() * scale, keys, values, seen, sinks)
        start = end
    return output


def _require_caches(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, sinks: torch.Tensor | None) -> None:
    """Refuse queries and caches that do not fit each other."""
    _KERNEL.require(q.dim() == 3, "q", f"of shape {list(q.shape)}", "with cu_seqlens_q it must be (rows, heads, size)")
    shape = f"of shape {list(k_cache.shape)}"
    _KERNEL.require(k_cache.dim() == 4, "k_cache", shape, "it must be (pages, page size, KV heads, size)")
    _KERNEL.require_shape("v_cache", v_cache, tuple(k_cache.shape), "that of k_cache")
    heads, size, kv_heads = q.shape[1], q.shape[2], k_cache.shape[2]
    _KERNEL.require(size == k_cache.shape[3], "k_cache", shape, f"q has heads of {size}")
    fits = size % 8 == 0 and size <= _LARGEST_HEAD
    _KERNEL.require(fits, "q", f"of head size {size}", f"it must be a multiple of 8 up to {_LARGEST_HEAD}")
    _KERNEL.require(heads % kv_heads == 0, "k_cache", f"of {kv_heads} heads", f"they must divide the {heads} of q")
    _KERNEL.require(q.dtype in _DTYPES, "q", q.dtype, f"it must be one of {[str(one) for one in _DTYPES]}")
    for name, tensor in (("k_cache", k_cache), ("v_cache", v_cache)):
        _KERNEL.require(tensor.dtype == q.dtype, name, tensor.dtype, f"q is {q.dtype}")
    for name, tensor in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        stride = tensor.stride(-1)
        _KERNEL.require(stride == 1, name, f"of stride {stride}", "its last dimension must be contiguous")
    if sinks is not None:
        _KERNEL.require_shape("sinks", sinks, (heads,), "the heads of q")


def _query_ends(cu_seqlens_q: torch.Tensor, rows: int, longest: int | None) -> list[int]:
    """Where the query rows of each request end."""
    _KERNEL.require_int32("cu_seqlens_q", cu_seqlens_q)
    bounds = cu_seqlens_q.tolist()
    _KERNEL.require(bool(bounds) and bounds[0] == 0, "cu_seqlens_q", bounds, "it must begin with 0")
    counts = [end - start for start, end in pairwise(bounds)]
    _KERNEL.require(all(count >= 0 for count in counts), "cu_seqlens_q", bounds, "it must not fall")
    _KERNEL.require(bounds[-1] <= rows, "cu_seqlens_q", bounds, f"q has {rows} rows")
    most = max(counts, default=0)
    rule = f"a request has {most} query rows, and the kernel leaves out what is more"
    _KERNEL.require(longest is not None and longest >= most, "max_seqlen_q", longest, rule)
    return bounds[1:]


def _lengths(cache_seqlens: torch.Tensor, page_table: torch.Tensor, batch: int, cache: torch.Tensor) -> list[int]:
    """How many positions of each request are seen, all of them in the table, on pages of the cache."""
    _KERNEL.require_int32("cache_seqlens", cache_seqlens)
    _KERNEL.require_shape("cache_seqlens", cache_seqlens, (batch,), "the requests of cu_seqlens_q")
    _KERNEL.require_int32("page_table", page_table)
    width, (pages, page_size) = page_table.shape[-1], cache.shape[:2]
    _KERNEL.require_shape("page_table", page_table, (batch, width), "the requests of cu_seqlens_q, and its width")
    lengths: list[int] = cache_seqlens.tolist()
    for request, length in enumerate(lengths):
        name = f"cache_seqlens[{request}]"
        _KERNEL.require(length >= 0, name, length, "a length must not be negative")
        rule = f"the page table of {width} pages of {page_size} reaches {width * page_size} positions"
        _KERNEL.require(length <= width * page_size, name, length, rule)
        for column, page in enumerate(page_table[request, : -(-length // page_size)].tolist()):
            place = f"page_table[{request}, {column}]"
            _KERNEL.require(0 <= page < pages, place, page, f"the cache has pages 0 to {pages - 1}")
    return lengths
