"""Attention that operators compute: layouts, masks, windows, sinks and rope parts, against float64."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from harness.conformance.batch import CAUSAL, SCALE, Batch, Sees, causally, everything, make_batch
from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device, Host

FUSED = "npu.npu_fused_infer_attention_score"
FUSED_2 = "npu.npu_fused_infer_attention_score_v2"
WORKSPACE = "npu._npu_fused_infer_attention_score_get_max_workspace"
EXTENDING = "npu._npu_flash_attention_qlens"
DECODING = "npu._npu_paged_attention"

ALIGNED = Rule("attention_mask.py", "Assumption: the last query is aligned to the last position")
PADDED = Rule("query_layout.py", "One group per batch entry, of up to S queries")
WIDTHS = Rule("query_layout.py", "Assumption: TND takes these")
WINDOW = Rule("attention_mask.py", "Assumption: the window holds for a single query too")

#: Half precision, as the device has no other; finite around the pages, as real kernels read page padding.
batch = partial(make_batch, page_size=128, dtype=torch.float16, dimension=128, around=3.0)


def reference(made: Batch, sees: Sees, sinks: Sequence[float] | None = None) -> Callable[[], Expected]:
    """The attention of `made` in float64, as an expectation."""
    return lambda: {"output": made.reference(sees, sinks)}


def fused(name: str, rule: Rule, made: Batch, sees: Sees, **changes: Any) -> Case:
    """A call in TND."""
    return accepted(name, rule, Call(FUSED, lambda: made.fused(**changes)), reference(made, sees))


def padded(name: str, rule: Rule, made: Batch, sees: Sees, **changes: Any) -> Case:
    """A call in BSH."""
    return accepted(name, rule, Call(FUSED, lambda: made.padded(**changes)), reference(made, sees))


VERIFY = batch((4, 4, 4), (5, 130, 64))
DECODE = batch((1, 1, 1), (1, 128, 77))


def by_layout(layout: str) -> Arguments:
    """Decoding in a layout with an axis for heads; BNSD reads caches that have it before positions."""
    query = DECODE.query.unsqueeze(1)
    if layout == "BSND":
        return DECODE.padded(query=query, input_layout=layout)
    first = {name: getattr(DECODE, name).transpose(1, 2).contiguous() for name in ("key", "value")}
    return DECODE.padded(query=query.transpose(1, 2).contiguous(), input_layout=layout, **first)


def shorter() -> Expected:
    """Groups of three queries, of which the second has one and two of padding."""
    expected = UNEVEN.reference(everything)
    expected[4:] = 0
    return {"output": expected}


UNEVEN = batch((3, 3), (20, 7))


def whole_mask() -> torch.Tensor:
    """Hides positions 0 to 2 of the first request, and those from 10 on of the second."""
    mask = torch.zeros(2, 1, 1, PAIR.table.shape[1] * PAIR.page_size, dtype=torch.bool)
    mask[0, :, :, :3] = mask[1, :, :, 10:] = True
    return mask


def not_hidden(query: int, position: int, queries: int, positions: int) -> bool:
    """What `whole_mask` leaves to be seen."""
    return position >= 3 if positions == 9 else position < 10


PAIR = batch((1, 1), (9, 30))


def second(made: Batch, **changes: Any) -> Arguments:
    """Arguments of the second version in TND, causal."""
    query, key, value = made.merged()
    arguments = {
        **made.paged(),
        "query": query,
        "key": key,
        "value": value,
        "num_query_heads": made.heads,
        "num_key_value_heads": made.kv_heads,
        "input_layout": "TND",
        "actual_seq_qlen": made.ends,
        "actual_seq_kvlen": list(made.kv_lengths),
        "atten_mask": CAUSAL,
        "sparse_mode": 3,
        "softmax_scale": SCALE,
    }
    return arguments | changes


WINDOWED = batch((3, 1), (20, 9))
LONE = batch((5,), (21,))
SINKS = (0.5, -1.0, 2.0, 0.0)


def within(query: int, position: int, queries: int, positions: int) -> bool:
    """The query's own position and four before it."""
    own = positions - queries + query
    return own - 4 <= position <= own


def in_one_entry(made: Batch, **changes: Any) -> Arguments:
    """One request in BSND, as sglang passes extends with sinks."""
    return second(made, query=made.query[None], input_layout="BSND", atten_mask=CAUSAL[None].to(torch.int8), **changes)


LATENT = batch((2, 2), (18, 5), kv_heads=1, dimension=512)
ROPE = batch((2, 2), (18, 5), kv_heads=1, dimension=64)


def latent() -> Arguments:
    """One latent head that is keys and values, and rope parts beside it."""
    cache = LATENT.key.transpose(1, 2).contiguous()
    ropes = {"query_rope": ROPE.query, "key_rope": ROPE.key.transpose(1, 2).contiguous()}
    return LATENT.fused(key=cache, value=cache, **ropes)


def in_nz(cache: torch.Tensor) -> torch.Tensor:
    """A cache (pages, page size, KV heads, D) in the layout NZ: (pages, KV heads, D / 16, page size, 16)."""
    return cache.view(*cache.shape[:3], -1, 16).permute(0, 2, 3, 1, 4).contiguous()


def latent_in_nz(**changes: Any) -> Arguments:
    """The same, with all caches in the layout NZ."""
    cache = in_nz(LATENT.key)
    return {**latent(), "key": cache, "value": cache, "key_rope": in_nz(ROPE.key), **changes}


def second_in_nz() -> Arguments:
    """For the second version."""
    given = latent_in_nz()
    tensors = {name: given[name] for name in ("key", "value", "query_rope", "key_rope")}
    return second(LATENT, **tensors)


def latent_reference() -> Expected:
    """The rope parts are further dimensions of keys and queries."""
    query, key = (torch.cat([getattr(one, name) for one in (LATENT, ROPE)], -1) for name in ("query", "key"))
    return {"output": LATENT._replace(query=query, key=key, value=LATENT.key).reference(causally)}


def into_memory(device: Device) -> Values:
    """The overload that writes into what it is given, with the workspace that the device asks for."""
    given = device.placed(DECODE.padded())
    workspace = device.operator(WORKSPACE)(**given)
    out = [torch.empty_like(given["query"]), torch.empty(1, dtype=given["query"].dtype, device="npu")]
    device.operator(FUSED).out(**given, workspace=workspace, out=out)
    return device.wait_for({"output": out[0]})


def paged(name: str, operator: str, made: Batch, sees: Sees, rule: Rule) -> Case:
    """An operator of ATB, which is told lengths by tensors on the host and writes to `out`."""

    def arguments() -> Arguments:
        given = made.qlens() if operator == EXTENDING else made.single()
        return {name: Host(value) if name in ("seq_len", "context_lens") else value for name, value in given.items()}

    return accepted(name, rule, Call(operator, arguments, written=("out",)), lambda: {"out": made.reference(sees)})


def _fused_cases() -> list[Case]:
    zeros = Rule("attention.py", "Assumption: a query that sees no position yields zeros")
    small = Rule("fused_call.py", "it must be a multiple of 16 up to")
    mask = Rule("attention_mask.py", "return entries[group if len(entries) > 1 else 0")
    cases = [
        fused("a verify is causal from the last position", ALIGNED, VERIFY, causally),
        fused("so it is in bfloat16", ALIGNED, batch((4, 4), (30, 9), dtype=torch.bfloat16), causally),
        fused("a mask of mode 2 is causal from the first position", ALIGNED, UNEVEN,
              lambda query, position, queries, positions: position <= query, sparse_mode=2),
        fused("a draft block sees everything", Rule("attention_mask.py", "or None for everything"), VERIFY, everything,
              atten_mask=None, sparse_mode=0),
        fused("queries before the first position, and those of no positions, give zeros", zeros,
              batch((1, 4), (0, 2)), causally),
        padded("decoding in BSH", PADDED, DECODE, everything),
        padded("a shorter request of a padded batch leaves zeros", Rule("query_layout.py", "the outputs of padding"),
               UNEVEN, everything, actual_seq_lengths=[3, 1])._replace(expected=shorter),
        padded("a single length is every request's", Rule("query_layout.py", "a single one is every group's"),
               batch((1, 1), (9, 9)), everything, actual_seq_lengths_kv=[9]),
        padded("a whole mask hides positions of its request", mask, PAIR, not_hidden, atten_mask=whole_mask()),
        accepted("rope parts are further dimensions of a latent head",
                 Rule("fused_call.py", '"key_rope"]], dim=-1) if "key_rope" in'), Call(FUSED, latent),
                 latent_reference),
    ]  # fmt: skip
    tiles = Rule("paged_cache.py", "A cache in the layout NZ")
    for operator, arguments in ((FUSED, latent_in_nz), (FUSED_2, second_in_nz)):
        name = f"latents and rope parts in NZ by {operator.removeprefix('npu.')}"
        cases.append(accepted(name, tiles, Call(operator, arguments), latent_reference))
    for page in (16, 64):
        made = batch((4, 4), (30, 70), page_size=page)
        cases.append(fused(f"a verify over pages of {page}", small, made, causally))
    for width in (64, 192, 256):
        made = batch((4, 4), (30, 9), dimension=width)
        cases.append(fused(f"packed queries of head dimension {width}", WIDTHS, made, causally))
    for layout in ("BSND", "BNSD"):
        call = Call(FUSED, partial(by_layout, layout))
        cases.append(accepted(f"decoding in {layout}", PADDED, call, reference(DECODE, everything)))
    return cases


def _other_cases() -> list[Case]:
    sink = Rule("fused_attention.py", "Assumption: a sink works in every layout")
    workspace = Rule("overloads.py", "Assumption: any workspace is large enough")
    causal = Rule("paged_attention.py", "Assumption: a causal mask of any size stands for causality")
    return [
        Case("attention into given memory", (FUSED, WORKSPACE), workspace, into_memory, reference(DECODE, everything)),
        accepted("a window and a single query", WINDOW, Call(FUSED_2, lambda: second(
            WINDOWED, sparse_mode=4, pre_tokens=4, next_tokens=0)), reference(WINDOWED, within)),
        accepted("a window with sinks", sink, Call(FUSED_2, lambda: second(
            WINDOWED, sparse_mode=4, pre_tokens=4, next_tokens=0, learnable_sink=torch.tensor(SINKS).half())),
            reference(WINDOWED, within, SINKS)),
        accepted("one request in BSND", PADDED, Call(FUSED_2, lambda: in_one_entry(LONE)), reference(LONE, causally)),
        accepted("sinks in BSND", sink, Call(FUSED_2, lambda: in_one_entry(
            LONE, learnable_sink=torch.tensor(SINKS).half())), reference(LONE, causally, SINKS)),
        paged("extending behind a prefix", EXTENDING, batch((6, 1, 17), (6, 40, 133)), causally, causal),
        paged("decoding by ATB", DECODING, DECODE, everything,
              Rule("paged_attention.py", "the attention of one query per request over all of its positions")),
    ]  # fmt: skip


CASES = (*_fused_cases(), *_other_cases())
