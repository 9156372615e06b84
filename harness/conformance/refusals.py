"""Arguments that the device's tiling refuses: one change each to a call that is right."""

from functools import partial
from typing import Any

import torch

from harness.conformance.attention import EXTENDING, FUSED, UNEVEN, batch, latent_in_nz
from harness.conformance.batch import CAUSAL
from harness.conformance.calls import Call, refused
from harness.conformance.case import Case, Rule
from harness.conformance.device import Host
from harness.conformance.writes import RESHAPE, SCATTER, SCATTER_PAGES, STORED

SMALL = batch((3, 2), (20, 7))
_HALF = torch.float16

#: The rule's file and words, and what is changed in the call.
_FUSED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("query_layout.py", "it must be one of {', '.join(_AXES)}", {"input_layout": "SBH"}),
    ("attention_mask.py", "it must be one of {_MODES}", {"sparse_mode": 5}),
    ("attention_mask.py", "needs one of shape {_COMPRESSED}", {"atten_mask": None}),
    ("attention_mask.py", "needs one of shape {_COMPRESSED}", {"atten_mask": CAUSAL[:128, :128]}),
    ("attention_mask.py", "it must be bool, int8 or uint8", {"atten_mask": CAUSAL.float()}),
    ("attention_mask.py", "TND has no mask where sparse_mode is 0", {"sparse_mode": 0}),
    ("attention_mask.py", "it must be at least 0", {"sparse_mode": 4, "pre_tokens": -5, "next_tokens": 0}),
    ("query_layout.py", "is None: TND needs it", {"actual_seq_lengths": None}),
    ("query_layout.py", "cumulative lengths must not decrease", {"actual_seq_lengths": [3, 2]}),
    ("query_layout.py", "the last must be T of", {"actual_seq_lengths": [3, 4]}),
    ("arguments.py", "none may be negative", {"actual_seq_lengths": [-1, 5]}),
    ("arguments.py", "none may be negative", {"actual_seq_lengths_kv": [20, -1]}),
    ("fused_call.py", "is None: paged caches need it", {"actual_seq_lengths_kv": None}),
    ("fused_call.py", "lengths, one per group of queries", {"actual_seq_lengths_kv": [20]}),
    ("paged_cache.py", "rows, one per group of queries", {"block_table": torch.zeros(1, 2, dtype=torch.int32)}),
    ("paged_cache.py", "it must have 2 axes", {"block_table": torch.zeros(2, dtype=torch.int32)}),
    ("paged_cache.py", "it must be int32", {"block_table": torch.zeros(2, 2, dtype=torch.int64)}),
    ("fused_call.py", "it must be a multiple of 16 up to", {"block_size": 0}),
    ("fused_call.py", "it must be a multiple of 16 up to", {"block_size": 24}),
    ("fused_call.py", "it must be a multiple of 16 up to", {"block_size": 1024}),
    ("fused_call.py", "block_size {size}, num_key_value_heads {heads} * D", {"block_size": 64}),
    ("arguments.py", "it must be positive", {"num_heads": 0}),
    ("arguments.py", "it must divide {name}", {"num_key_value_heads": 3}),
    ("query_layout.py", "N must be {self.heads_name}", {"num_heads": 8}),
    ("query_layout.py", "{layout} has {_AXES[layout]} axes", {"query": torch.zeros(5, 512, dtype=_HALF)}),
    ("query_layout.py", "in TND, D must be one of", {"query": torch.zeros(5, 4, 48, dtype=_HALF)}),
    ("arguments.py", "all of {list(tensors)} must be {first}", {"key": SMALL.key.flatten(2).bfloat16()}),
    ("fused_call.py", "{given} needs it", {"query_rope": torch.zeros(5, 4, 64, dtype=_HALF)}),
)  # fmt: skip
_PADDED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("query_layout.py", "none may exceed query's S", {"actual_seq_lengths": [4]}),
    ("query_layout.py", "there must be 1 length, or {groups}", {"actual_seq_lengths_kv": []}),
    ("query_layout.py", "must divide H", {"num_heads": 5, "num_key_value_heads": 1}),
    ("attention_mask.py", "it must hide at least", {"atten_mask": torch.zeros(2, 3, 20, dtype=torch.bool)}),
)  # fmt: skip
_PAGED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("paged_attention.py", "there must be {groups} lengths", {"context_lens": Host(torch.tensor([20]).int())}),
    ("arguments.py", "none may be negative", {"context_lens": Host(torch.tensor([20, -7]).int())}),
    ("paged_attention.py", "the sum must be query's tokens", {"seq_len": Host(torch.tensor([3, 3]).int())}),
    ("arguments.py", "it must divide {name}", {"num_kv_heads": 3}),
    ("paged_attention.py", "num_kv_heads {heads}, D)", {"num_kv_heads": 1}),
    ("paged_attention.py", "the page size must be", {"key_cache": torch.zeros(9, 256, 2, 128, dtype=_HALF)}),
    ("paged_attention.py", "D must not exceed", {"key_cache": torch.zeros(9, 16, 2, 512, dtype=_HALF)}),
    ("paged_attention.py", "it must be square", {"mask": torch.zeros(4, 8, dtype=_HALF)}),
)  # fmt: skip
#: Over caches in the layout NZ.
_TILED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("rope_parts.py", "it must be one of {sizes}", {"block_size": 16}),
    ("rope_parts.py", "it must be one of {layouts}", {
        "input_layout": "BNSD",
        "query": torch.zeros(2, 4, 2, 512, dtype=_HALF),
        "query_rope": torch.zeros(2, 4, 2, 64, dtype=_HALF),
        "actual_seq_lengths": None,
    }),
    ("fused_call.py", "in NZ it must be (pages", {"key_rope": torch.zeros(9, 1, 128, 64, dtype=_HALF)}),
    ("fused_call.py", "in NZ it must be (pages", {"value": torch.zeros(9, 1, 16, 128, 32, dtype=_HALF)}),
)  # fmt: skip
_TILED_WRITES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("cache_writes.py", "it must be one of {_CACHE_MODES}", {"cache_mode": "ND"}),
    ("cache_writes.py", "(pages, heads * D / {TILE}, page size, {TILE})", {
        "key_cache": torch.zeros(4, 16, 2, 128, dtype=_HALF)
    }),
    ("cache_writes.py", "with heads * D of {width}", {"key_cache": torch.zeros(4, 8, 16, 16, dtype=_HALF)}),
)  # fmt: skip
_WRITES: tuple[tuple[str, str, dict[str, torch.Tensor]], ...] = (
    ("arguments.py", "it must be int32 or int64", {"slots": STORED.slots.half()}),
    ("cache_writes.py", "{self.cache_name} is {self.cache.dtype}", {"key": STORED.key.float()}),
    ("cache_writes.py", "it must be {expected}", {"slots": STORED.slots[:2]}),
)  # fmt: skip


def _changed(change: dict[str, Any]) -> str:
    """A change as words; of tensors, shape and type."""

    def shown(value: Any) -> str:
        value = value.tensor if isinstance(value, Host) else value
        if isinstance(value, torch.Tensor):
            few = f" {value.tolist()}" if value.dim() == 1 and len(value) < 4 else ""
            return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}{few}"
        return repr(value)

    return ", ".join(f"{name} {shown(value)}" for name, value in change.items())


def _extending(change: dict[str, Any]) -> dict[str, Any]:
    given = SMALL.qlens()
    return given | {name: Host(given[name]) for name in ("seq_len", "context_lens")} | change


def _tiled(change: dict[str, Any]) -> dict[str, Any]:
    return {**STORED.tiled(), **change}


CASES: tuple[Case, ...] = (
    *(
        refused(f"fused attention: {_changed(change)}", Rule(file, words),
                Call(FUSED, partial(SMALL.fused, **change)))
        for file, words, change in _FUSED
    ),
    *(
        refused(f"padded queries: {_changed(change)}", Rule(file, words),
                Call(FUSED, partial(UNEVEN.padded, **change)))
        for file, words, change in _PADDED
    ),
    *(
        refused(f"attention of ATB: {_changed(change)}", Rule(file, words),
                Call(EXTENDING, partial(_extending, change)))
        for file, words, change in _PAGED
    ),
    *(
        refused(f"latents in NZ: {_changed(change)}", Rule(file, words), Call(FUSED, partial(latent_in_nz, **change)))
        for file, words, change in _TILED
    ),
    *(
        refused(f"a write in NZ: {_changed(change)}", Rule(file, words), Call(SCATTER_PAGES, partial(_tiled, change)))
        for file, words, change in _TILED_WRITES
    ),
    *(
        refused(f"{operator.removeprefix('npu.')}: {_changed(change)}", Rule(file, words),
                Call(operator, partial(STORED._replace(**change).arguments, operator)))
        for operator in (RESHAPE, SCATTER_PAGES, SCATTER)
        for file, words, change in _WRITES
        if operator != SCATTER or "key" not in change
    ),
)  # fmt: skip
