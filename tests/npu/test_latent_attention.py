"""The emulated operators of multi-head latent attention, held to dense attention in float64 and to the vendor's rules.

The reference below shares nothing with the emulation: one query and head at a time, in numpy.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from harness.npu import fault
from harness.npu.boundary import AttentionRead, Event, listening
from harness.npu.fault import DeviceFault
from harness.npu.fused_attention import npu_fused_infer_attention_score, npu_fused_infer_attention_score_v2
from harness.npu.paged_attention import _npu_paged_attention_mla
from harness.npu.partial_attention import npu_attention_update, npu_ring_mla

LATENT, ROPE, NOPE = 512, 64, 128
SCALE = 0.07
CAUSAL = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
RING_CAUSAL = torch.ones(512, 512).triu(1)


@pytest.fixture(autouse=True)
def device() -> Iterator[None]:
    """A device of its own for each test, as some stop it."""
    fault.reset()
    yield
    fault.reset()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng((seed, *shape)).standard_normal(shape))


def dense(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, causal: bool) -> np.ndarray:
    """Attention of one request: query (q, h, d), key and value (k, h, d); causal counts from the last position."""
    q, k, v = (tensor.numpy() for tensor in (query, key, value))
    found = np.zeros((len(q), q.shape[1], v.shape[2]))
    for row in range(len(q)):
        seen = len(k) - len(q) + row + 1 if causal else len(k)
        for head in range(q.shape[1]):
            weights = np.exp(k[:seen, head] @ q[row, head] * SCALE)
            found[row, head] = weights @ v[:seen, head] / weights.sum()
    return found


def agree(found: torch.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.numpy().reshape(expected.shape), expected, atol=1e-12)


class Latent:
    """Requests over a paged latent cache of one head, whose unwritten slots hold NaN."""

    def __init__(self, query_lengths: tuple[int, ...], kv_lengths: tuple[int, ...], page: int = 16, heads: int = 4):
        self.query_lengths, self.kv_lengths, self.page, self.heads = query_lengths, kv_lengths, page, heads
        rows = sum(query_lengths)
        self.nope, self.rope = random(rows, heads, LATENT), random(rows, heads, ROPE)
        columns = -(-max(kv_lengths) // page)
        pages = 1 + columns * len(kv_lengths)
        self.cache = torch.full((pages, page, 1, LATENT), float("nan"), dtype=torch.float64)
        self.rope_cache = torch.full((pages, page, 1, ROPE), float("nan"), dtype=torch.float64)
        order = np.random.default_rng(5).permutation(pages - 1) + 1
        self.table = torch.from_numpy(order.reshape(len(kv_lengths), columns).astype(np.int32))
        for row, length in enumerate(kv_lengths):
            for position in range(length):
                place = int(self.table[row, position // page]), position % page
                self.cache[place] = random(1, LATENT, seed=row * 1000 + position)
                self.rope_cache[place] = random(1, ROPE, seed=row * 1000 + position)

    def paged(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the first version in TND, as sglang verifies."""
        cache = self.cache.view(-1, 1, self.page, LATENT)
        return {
            "query": self.nope,
            "key": cache,
            "value": cache,
            "query_rope": self.rope,
            "key_rope": self.rope_cache.view(-1, 1, self.page, ROPE),
            "num_heads": self.heads,
            "num_key_value_heads": 1,
            "input_layout": "TND",
            "scale": SCALE,
            "block_table": self.table,
            "block_size": self.page,
            "sparse_mode": 3,
            "atten_mask": CAUSAL,
            "actual_seq_lengths": [int(end) for end in np.cumsum(self.query_lengths)],
            "actual_seq_lengths_kv": list(self.kv_lengths),
        } | changes

    def single(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the first version in BSND, as sglang decodes."""
        cache = self.cache.view(-1, self.page, LATENT)
        return self.paged(
            query=self.nope.unsqueeze(1),
            query_rope=self.rope.unsqueeze(1),
            key=cache,
            value=cache,
            key_rope=self.rope_cache.view(-1, self.page, ROPE),
            input_layout="BSND",
            sparse_mode=0,
            atten_mask=None,
            actual_seq_lengths=None,
        ) | (changes)

    def in_nz(self, arguments: dict[str, Any], **changes: Any) -> dict[str, Any]:
        """`arguments` over the same caches in the layout NZ: (pages, 1, D / 16, page size, 16)."""
        cache, ropes = (
            torch.from_numpy(np.stack(np.split(one.numpy(), one.shape[3] // 16, axis=3), axis=1)).transpose(2, 3)
            for one in (self.cache, self.rope_cache)
        )
        tiled = {"key": cache, "value": cache, "key_rope": ropes}
        tiled = {name: one.permute(0, 2, 1, 3, 4).contiguous() for name, one in tiled.items()}
        tiled["value"] = tiled["key"]
        return arguments | tiled | changes

    def merged(self, **changes: Any) -> dict[str, Any]:
        """Arguments of the operator that decodes without ASCEND_USE_FIA."""
        return {
            "query": torch.cat([self.nope, self.rope], -1),
            "key_cache": torch.cat([self.cache, self.rope_cache], -1),
            "num_kv_heads": 1,
            "num_heads": self.heads,
            "scale_value": SCALE,
            "block_table": self.table,
            "context_lens": torch.tensor(self.kv_lengths, dtype=torch.int32),
            "mla_vheadsize": LATENT,
            "out": torch.empty_like(self.nope),
        } | changes

    def reference(self, causal: bool = True) -> np.ndarray:
        parts, start = [], 0
        for row, (queries, length) in enumerate(zip(self.query_lengths, self.kv_lengths, strict=True)):
            stop = start + queries
            places = [(int(self.table[row, n // self.page]), n % self.page) for n in range(length)]
            value = torch.stack([self.cache[place] for place in places]).expand(-1, self.heads, -1)
            ropes = torch.stack([self.rope_cache[place] for place in places]).expand(-1, self.heads, -1)
            query = torch.cat([self.nope[start:stop], self.rope[start:stop]], -1)
            parts.append(dense(query, torch.cat([value, ropes], -1), value, causal))
            start = stop
        return np.concatenate(parts)


@pytest.mark.parametrize("page", [16, 128])
def test_verifying_reads_latents_and_rope_parts(page: int) -> None:
    latent = Latent((3, 3), (20, 5), page)
    out = [torch.empty_like(latent.nope), torch.empty(1, dtype=torch.float64)]
    npu_fused_infer_attention_score.out(**latent.paged(), out=out)

    agree(out[0], latent.reference())


def test_decoding_agrees_in_both_operators() -> None:
    latent = Latent((1, 1, 1), (1, 16, 33), heads=8)
    merged = latent.merged()

    agree(npu_fused_infer_attention_score(**latent.single())[0], latent.reference())
    _npu_paged_attention_mla(**merged)
    agree(merged["out"], latent.reference())


def test_caches_in_nz_give_what_the_same_caches_give_as_they_are() -> None:
    verify, decode = Latent((3, 3), (130, 5), page=128), Latent((1, 1, 1), (1, 128, 300), page=128, heads=8)
    for latent, arguments in ((verify, verify.paged()), (decode, decode.single())):
        found, _ = npu_fused_infer_attention_score(**latent.in_nz(arguments))
        agree(found, latent.reference())
        assert torch.equal(found, npu_fused_infer_attention_score(**arguments)[0])
        agree(npu_fused_infer_attention_score_v2(**second(latent.in_nz(arguments)))[0], latent.reference())


def second(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of the first version under the names of the second."""
    names = {
        "num_heads": "num_query_heads",
        "scale": "softmax_scale",
        "actual_seq_lengths": "actual_seq_qlen",
        "actual_seq_lengths_kv": "actual_seq_kvlen",
    }
    return {names.get(name, name): value for name, value in arguments.items()}


def test_a_cache_that_is_read_in_nz_and_is_not_gives_something_else() -> None:
    """The control of the test above: the layout matters."""
    latent = Latent((1, 1), (128, 128), page=128)
    plain = latent.single()
    shapes = {name: (-1, 1, plain[name].shape[2] // 16, 128, 16) for name in ("key", "value", "key_rope")}
    found, _ = npu_fused_infer_attention_score(**plain | {name: plain[name].view(shapes[name]) for name in shapes})
    assert not torch.allclose(found, npu_fused_infer_attention_score(**plain)[0], atol=1e-3)


def test_caches_in_nz_are_announced_with_their_pages() -> None:
    latent, heard = Latent((2, 2), (200, 5), page=128), list[Event]()
    arguments = latent.in_nz(latent.paged())
    with listening(heard.append):
        npu_fused_infer_attention_score(**arguments)

    reads = [event for event in heard if isinstance(event, AttentionRead)]
    assert [read.cache for read in reads] == [arguments["key"].data_ptr(), arguments["key_rope"].data_ptr()]
    assert all((read.pages, read.page_size, read.kv_lengths) == (5, 128, (200, 5)) for read in reads)
    assert all(read.block_table.tolist() == latent.table.tolist() for read in reads)


class ByHead:
    """An extend over keys by head that are not cached: the new tokens of each request, and its prefix."""

    def __init__(self, new: tuple[int, ...], prefixes: tuple[int, ...], heads: int = 3) -> None:
        self.new, self.prefixes, self.heads = new, prefixes, heads
        self.nope, self.rope = random(sum(new), heads, NOPE), random(sum(new), heads, ROPE)
        self.key, self.key_rope, self.value = self._keys(sum(new), 1)
        self.before = self._keys(sum(prefixes), 2)
        self.ends = [int(end) for end in np.cumsum(new)]

    def _keys(self, rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (
            random(rows, self.heads, NOPE, seed=seed),
            random(rows, self.heads, ROPE, seed=seed),
            random(rows, self.heads, NOPE, seed=seed + 10),
        )

    def fused(self, prefix: bool = False, **changes: Any) -> dict[str, Any]:
        """Arguments of the second version for the new tokens, or for the prefixes."""
        key, key_rope, value = self.before if prefix else (self.key, self.key_rope, self.value)
        masked = {} if prefix else {"atten_mask": CAUSAL, "sparse_mode": 3, "next_tokens": 0}
        return (
            {
                "query": self.nope,
                "key": key,
                "value": value,
                "query_rope": self.rope,
                "key_rope": key_rope,
                "num_query_heads": self.heads,
                "num_key_value_heads": self.heads,
                "input_layout": "TND",
                "softmax_scale": SCALE,
                "actual_seq_qlen": self.ends,
                "actual_seq_kvlen": [int(end) for end in np.cumsum(self.prefixes)] if prefix else self.ends,
                "return_softmax_lse": True,
            }
            | masked
            | (changes)
        )

    def ring(self, prefix: bool = False, **changes: Any) -> dict[str, Any]:
        """Arguments of the ring operator for the new tokens, or for the prefixes."""
        key, key_rope, value = self.before if prefix else (self.key, self.key_rope, self.value)
        lengths = torch.tensor(self.new, dtype=torch.int32)
        return {
            "q_nope": self.nope,
            "q_rope": self.rope,
            "k_nope": key,
            "k_rope": key_rope,
            "value": value,
            "mask": RING_CAUSAL,
            "seqlen": torch.stack([lengths, torch.tensor(self.prefixes, dtype=torch.int32)]) if prefix else lengths,
            "head_num": self.heads,
            "kv_head_num": self.heads,
            "qk_scale": SCALE,
            "kernel_type": "kernel_type_high_precision",
            "mask_type": "no_mask" if prefix else "mask_type_triu",
            "calc_type": "calc_type_default" if prefix else "calc_type_first_ring",
            "output": torch.empty_like(self.nope),
            "softmax_lse": torch.empty(self.heads, len(self.nope), dtype=torch.float64),
        } | changes

    def reference(self, prefix: bool = True) -> np.ndarray:
        """Attention of every request over its prefix, if asked for, and its new tokens."""
        parts, start, first = [], 0, 0
        for new, before in zip(self.new, self.prefixes if prefix else [0] * len(self.new), strict=True):
            own, old = slice(start, start + new), slice(first, first + before)
            key = torch.cat([self.before[0][old], self.key[own]])
            rope = torch.cat([self.before[1][old], self.key_rope[own]])
            value = torch.cat([self.before[2][old], self.value[own]])
            query = torch.cat([self.nope[own], self.rope[own]], -1)
            parts.append(dense(query, torch.cat([key, rope], -1), value, causal=True))
            start, first = start + new, first + before
        return np.concatenate(parts)


def test_an_extend_without_a_prefix_reads_keys_that_are_not_cached() -> None:
    extend = ByHead((5, 1, 3), (0, 0, 0))
    found, sums = npu_fused_infer_attention_score(
        extend.nope,
        extend.key,
        extend.value,
        query_rope=extend.rope,
        key_rope=extend.key_rope,
        num_heads=3,
        input_layout="TND",
        atten_mask=CAUSAL,
        sparse_mode=3,
        scale=SCALE,
        next_tokens=0,
        actual_seq_lengths=np.array(extend.ends),
        actual_seq_lengths_kv=np.array(extend.ends),
    )

    agree(found, extend.reference(prefix=False))
    assert sums.tolist() == [0.0]


def test_two_parts_put_together_by_their_sums_are_the_whole() -> None:
    extend = ByHead((5, 1, 3), (16, 32, 16))
    parts = [npu_fused_infer_attention_score_v2(**extend.fused(prefix)) for prefix in (False, True)]
    assert [tuple(sums.shape) for _, sums in parts] == [(9, 3, 1), (9, 3, 1)]
    joined, _ = npu_attention_update(
        tuple(sums.reshape(-1) for _, sums in parts), tuple(output.reshape(-1, NOPE) for output, _ in parts), 0
    )

    agree(joined, extend.reference())


def test_the_sum_over_no_key_is_nobodys_to_use() -> None:
    """Of the requests, the second has no prefix; what its rows attended to is zeros, as documented."""
    found, sums = npu_fused_infer_attention_score_v2(**ByHead((5, 1, 3), (16, 0, 16)).fused(prefix=True))

    assert sums.isnan().flatten(1).all(1).tolist() == [False] * 5 + [True] + [False] * 3
    assert not found[5].any()


def test_the_ring_joins_new_tokens_with_their_prefixes_in_place() -> None:
    extend = ByHead((5, 1, 3), (16, 0, 16))
    first = extend.ring()
    npu_ring_mla(**first)
    agree(first["output"], extend.reference(prefix=False))
    output, sums = first["output"], first["softmax_lse"]
    npu_ring_mla(**extend.ring(prefix=True, pre_out=output, prev_lse=sums, output=output, softmax_lse=sums))

    agree(output, extend.reference())


def test_updating_gives_the_sums_of_all_parts() -> None:
    sums = random(2, 4)
    _, total = npu_attention_update(tuple(sums), tuple(random(2, 4, 8)), 1)

    agree(total, np.log(np.exp(sums.numpy()).sum(0)))


def test_a_part_over_nothing_changes_nothing() -> None:
    outputs = random(2, 4, 8)
    nothing = torch.full((4,), float("-inf"), dtype=torch.float64)
    joined, _ = npu_attention_update((random(4), nothing), tuple(outputs), 0)

    agree(joined, outputs[0].numpy())


def test_latents_are_announced_once_and_rope_parts_beside_them() -> None:
    latent, heard = Latent((2, 2), (20, 5)), list[Event]()
    with listening(heard.append):
        npu_fused_infer_attention_score(**latent.paged())

    assert [event.cache for event in heard] == [latent.cache.data_ptr(), latent.rope_cache.data_ptr()]
    assert all(isinstance(event, AttentionRead) and event.kv_lengths == (20, 5) for event in heard)


def test_a_merged_cache_is_announced_once() -> None:
    latent, heard = Latent((1, 1), (20, 5)), list[Event]()
    merged = latent.merged()
    with listening(heard.append):
        _npu_paged_attention_mla(**merged)

    (event,) = heard
    assert isinstance(event, AttentionRead)
    assert (event.cache, event.kv_lengths) == (merged["key_cache"].data_ptr(), (20, 5))


def test_keys_that_are_not_cached_are_not_announced() -> None:
    heard = list[Event]()
    with listening(heard.append):
        npu_fused_infer_attention_score_v2(**ByHead((2,), (0,)).fused())

    assert heard == []


def test_a_latent_page_past_the_table_stops_the_device() -> None:
    latent = Latent((1, 1), (20, 5))
    with pytest.raises(DeviceFault, match=r"507015.*context_lens.0. is 33, but block_table has 2 columns"):
        _npu_paged_attention_mla(**latent.merged(context_lens=torch.tensor([33, 5], dtype=torch.int32)))


def latent_refusal(queries: int = 2, page: int = 16, **changes: Any) -> Callable[[], Any]:
    return lambda: npu_fused_infer_attention_score(**Latent((queries,), (20,), page).paged(**changes))


def single_refusal(heads: int = 4, **changes: Any) -> Callable[[], Any]:
    return lambda: npu_fused_infer_attention_score(**Latent((1, 1), (20, 5), heads=heads).single(**changes))


def by_head_refusal(**changes: Any) -> Callable[[], Any]:
    return lambda: npu_fused_infer_attention_score_v2(**ByHead((2, 3), (16, 16)).fused(**changes))


def ring_refusal(prefix: bool = False, **changes: Any) -> Callable[[], Any]:
    return lambda: npu_ring_mla(**ByHead((2, 3), (16, 16)).ring(prefix, **changes))


def merged_refusal(**changes: Any) -> Callable[[], Any]:
    return lambda: _npu_paged_attention_mla(**Latent((1, 1), (20, 5)).merged(**changes))


def update_refusal(
    sums: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...], kind: int = 0
) -> Callable[[], Any]:
    return lambda: npu_attention_update(sums, outputs, kind)


def tiled_refusal(page: int = 128, **changes: Any) -> Callable[[], Any]:
    latent = Latent((2,), (20,), page)
    return lambda: npu_fused_infer_attention_score(**latent.in_nz(latent.paged(), **changes))


def heads_first() -> dict[str, Any]:
    """Queries of one request in BNSD."""
    return {
        "input_layout": "BNSD",
        "query": random(1, 4, 2, LATENT),
        "query_rope": random(1, 4, 2, ROPE),
        "actual_seq_lengths": None,
    }


REFUSALS = [
    (r"block_size is 16: with rope and D 512 in NZ it must be one of \(128,\)", tiled_refusal(page=16)),
    ("input_layout is BNSD: with rope and D 512 in NZ it must be one of", tiled_refusal(**heads_first())),
    (r"key_rope is of shape \[2, 1, 128, 64\]: in NZ it must be", tiled_refusal(key_rope=random(2, 1, 128, ROPE))),
    (r"value is of shape \[2, 128, 512\]: in NZ it must be", tiled_refusal(value=random(2, 128, LATENT))),
    (r"value is of shape \[2, 1, 16, 128, 32\]: in NZ", tiled_refusal(value=random(2, 1, 16, 128, 32))),
    (r"key is of shape \[2, 1, 32, 64, 16\]: in NZ", tiled_refusal(key=random(2, 1, 32, 64, 16))),
    (
        r"key_rope is of shape \[2, 1, 4, 128, 16\]: it must be \(pages, block_size 128",
        tiled_refusal(key=random(2, 128, LATENT), value=random(2, 128, LATENT)),
    ),
    ("num_heads is 12: with rope and D 512", single_refusal(heads=12)),
    ("block_size is 64: with rope and D 512", latent_refusal(page=64)),
    ("query is of groups of up to 17 queries", latent_refusal(queries=17)),
    ("query_rope is of head dimension 32: it must be 64", latent_refusal(query_rope=random(2, 4, 32))),
    ("key_rope is None: query_rope needs it", latent_refusal(key_rope=None)),
    ("sparse_mode is 4: with rope and D 512 it must be 3", latent_refusal(sparse_mode=4)),
    ("sparse_mode is 3: .* it must be 0 for 1 queries", single_refusal(sparse_mode=3, atten_mask=CAUSAL)),
    (r"atten_mask is of shape \[1, 32\]: .* there is none", single_refusal(atten_mask=torch.zeros(1, 32).bool())),
    ("query is of head dimension 256: with rope", by_head_refusal(query=random(5, 3, 256), key=random(5, 3, 256))),
    (
        "with rope and D 128 there are no pages",
        by_head_refusal(block_table=torch.zeros(2, 2).int(), block_size=16, key_rope=random(2, 16, 3 * ROPE)),
    ),
    (r"actual_seq_kvlen is \[2, 9\]: the last must not exceed T of key, 5", by_head_refusal(actual_seq_kvlen=[2, 9])),
    (r"actual_seq_kvlen is \[3, 2\]: .* must not decrease", by_head_refusal(actual_seq_kvlen=[3, 2])),
    (r"actual_seq_kvlen is \[5\]: there must be 2", by_head_refusal(actual_seq_kvlen=[5])),
    ("actual_seq_kvlen is None: TND needs it", by_head_refusal(actual_seq_kvlen=None)),
    (r"value is of shape \[4, 3, 128\]", by_head_refusal(value=random(4, 3, 128))),
    (r"mask is of shape \[8, 8\]: it must be \(512, 512\)", ring_refusal(mask=RING_CAUSAL[:8, :8])),
    (r"k_rope is of shape \[5, 3, 32\]", ring_refusal(k_rope=random(5, 3, 32))),
    ("prev_lse is None: calc_type_default needs it", ring_refusal(prefix=True, pre_out=random(5, 3, 128))),
    ("pre_out is None: calc_type_default needs it", ring_refusal(prefix=True)),
    ("seqlen is .*: the sum of queries must be 5", ring_refusal(seqlen=torch.tensor([2, 2]))),
    ("seqlen is .*: there are 5 keys", ring_refusal(seqlen=torch.tensor([[2, 3], [3, 3]]))),
    ("seqlen is .*: with a causal mask, keys must be", ring_refusal(seqlen=torch.tensor([[2, 3], [1, 3]]))),
    ("seqlen is .*: no request is without queries", ring_refusal(seqlen=torch.tensor([0, 5]))),
    ("calc_type is calc_type_last", ring_refusal(calc_type="calc_type_last")),
    (r"softmax_lse is of shape \[5, 3\]: it must be \[3, 5\]", ring_refusal(softmax_lse=random(5, 3))),
    ("num_kv_heads is 2: a latent cache has 1 head", merged_refusal(num_kv_heads=2)),
    ("mla_vheadsize is 577", merged_refusal(mla_vheadsize=577)),
    (r"out is of shape \[2, 4, 576\]", merged_refusal(out=random(2, 4, 576))),
    ("lse is of 2 parts|local_out is of 1 parts: lse has 2", update_refusal((random(4), random(4)), (random(4, 8),))),
    (r"local_out is of shape \[4, 9\]: D must be a multiple of 8", update_refusal((random(4),), (random(4, 9),))),
    (r"lse is of shape \[5\]", update_refusal((random(4), random(5)), (random(4, 8), random(4, 8)))),
    ("update_type is 2", update_refusal((random(4),), (random(4, 8),), 2)),
    ("lse is torch.float16: it must be float32", update_refusal((random(4).half(),), (random(4, 8),))),
]


@pytest.mark.parametrize(("text", "call"), REFUSALS, ids=[text for text, _ in REFUSALS])
def test_wrong_arguments_are_refused_by_name(text: str, call: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


def test_softmax_sums_of_padded_layouts_are_not_emulated() -> None:
    with pytest.raises(NotImplementedError, match="BSND with softmax sums"):
        npu_fused_infer_attention_score_v2(
            random(1, 1, 4, NOPE),
            random(2, 16, 4 * NOPE),
            random(2, 16, 4 * NOPE),
            num_query_heads=4,
            input_layout="BSND",
            block_table=torch.zeros(1, 1, dtype=torch.int32),
            block_size=16,
            actual_seq_kvlen=[5],
            return_softmax_lse=True,
        )
