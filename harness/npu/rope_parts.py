"""What fused attention takes where queries and keys have rope parts: multi-head latent attention (MLA).

Rules of the documentation of `npu_fused_infer_attention_score_v2` in torch_npu 2.14.0. Queries of dimension 512 meet a
latent cache of one head, those of dimension 128 meet keys of every head that are not cached.
"""

from typing import NamedTuple

import torch

from harness.npu.arguments import Arguments

_LATENT, _BY_HEAD = 512, 128
_ROPE = 64
_HEADS = (1, 2, 4, 8, 16, 32, 64, 128)
_PAGE_SIZES, _TILED_PAGE_SIZES = (16, 128), (128,)
_MOST_QUERIES = 16
_LATENT_LAYOUTS, _TILED_LAYOUTS = ("BSH", "BSND", "BNSD", "TND"), ("BSH", "BSND", "TND")
_WHOLE, _RIGHT_DOWN = 0, 3


class RopeParts(NamedTuple):
    """One call with rope parts; `query_lengths` are those of the groups, `dimensions` those of each tensor's heads.

    `tiled`: caches are in the layout NZ.
    """

    arguments: Arguments
    layout: str
    heads: tuple[str, int]
    kv_heads: int
    dimensions: dict[str, int]
    query_lengths: tuple[int, ...]
    block_size: int
    tiled: bool
    mask: torch.Tensor | None
    sparse_mode: int

    def check(self) -> None:
        """Refuse what the device refuses."""
        require, dimension = self.arguments.require, self.dimensions["query"]
        known = dimension in (_LATENT, _BY_HEAD)
        require(known, "query", f"of head dimension {dimension}", f"with rope it must be {_LATENT} or {_BY_HEAD}")
        for name in ("query_rope", "key_rope"):
            given = self.dimensions[name]
            require(given == _ROPE, name, f"of head dimension {given}", f"it must be {_ROPE}")
        if dimension == _LATENT:
            self._check_latent()
        else:
            require(self.layout == "TND", "input_layout", self.layout, f"with rope and D {_BY_HEAD} it must be TND")
            rule = f"with rope and D {_BY_HEAD} there are no pages"
            require(self.block_size == 0, "block_size", self.block_size, rule)

    def _check_latent(self) -> None:
        require = self.arguments.require
        layouts, sizes = (_TILED_LAYOUTS, _TILED_PAGE_SIZES) if self.tiled else (_LATENT_LAYOUTS, _PAGE_SIZES)
        kind = f"with rope and D {_LATENT}{' in NZ' if self.tiled else ''}"
        require(self.layout in layouts, "input_layout", self.layout, f"{kind} it must be one of {layouts}")
        # Assumption: the first version takes these heads, too; its older text has 32, 64 and 128, sglang uses all.
        require(self.heads[1] in _HEADS, *self.heads, f"with rope and D {_LATENT} it must be one of {_HEADS}")
        require(self.kv_heads == 1, "num_key_value_heads", self.kv_heads, f"with rope and D {_LATENT} it must be 1")
        paged = self.block_size in sizes
        require(paged, "block_size", self.block_size, f"{kind} it must be one of {sizes}")
        longest = max(self.query_lengths, default=0)
        rule = f"with rope and D {_LATENT} a group has at most {_MOST_QUERIES} queries"
        require(longest <= _MOST_QUERIES, "query", f"of groups of up to {longest} queries", rule)
        # Assumption: in TND, groups of one query each may have the causal mask, which then hides nothing.
        single = longest == 1 and self.layout != "TND"
        mode = _WHOLE if single or (self.layout == "TND" and self.sparse_mode == _WHOLE) else _RIGHT_DOWN
        rule = f"with rope and D {_LATENT} it must be {mode} for {longest} queries in {self.layout}"
        require(self.sparse_mode == mode, "sparse_mode", self.sparse_mode, rule)
        if mode == _WHOLE and self.mask is not None:
            rule = f"with rope and D {_LATENT} there is none where sparse_mode is {mode}"
            self.arguments.require_shape(False, "atten_mask", self.mask, rule)
