"""Writes to KV caches, and the kernels that allocate their slots and look them up."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule

RESHAPE = "npu._npu_reshape_and_cache"
SCATTER_PAGES = "npu.npu_scatter_pa_kv_cache"
SCATTER = "npu.npu_scatter_nd_update_"
LOOK_UP = "npu.cache_loc_update"
ALLOCATE = "sgl_kernel_npu.mem_cache.allocator.alloc_extend_kernel"

PAGES, PAGE, HEADS, WIDTH = 4, 16, 2, 128
TILE = 16


class Store(NamedTuple):
    """Rows (token, head, D) of keys and values, and the slots that they go to."""

    key: torch.Tensor
    value: torch.Tensor
    slots: torch.Tensor

    def arguments(self, operator: str) -> Arguments:
        """As `operator` names them; the scatter without pages is given keys alone."""
        empty = torch.zeros(PAGES, PAGE, HEADS, WIDTH, dtype=torch.float16)
        if operator == SCATTER:
            return {"input": empty.view(-1, HEADS, WIDTH), "indices": self.slots.view(-1, 1), "updates": self.key}
        both = {"key": self.key, "value": self.value, "key_cache": empty, "value_cache": empty.clone()}
        if operator == SCATTER_PAGES:
            return {**both, "slot_mapping": self.slots, "cache_mode": "Norm"}
        return {**both, "slot_indices": self.slots}

    def expected(self, operator: str) -> Expected:
        """The caches, slot by slot."""
        caches: Expected = {}
        for name, rows in zip(WRITTEN[operator], (self.key, self.value), strict=False):
            cache = np.zeros((PAGES * PAGE, HEADS, WIDTH), dtype=np.float16)
            for slot, row in zip(self.slots.tolist(), rows.numpy(), strict=True):
                cache[slot] = row
            caches[name] = cache if operator == SCATTER else cache.reshape(PAGES, PAGE, HEADS, WIDTH)
        return caches

    def tiled(self) -> Arguments:
        """As the scatter to pages takes them for caches in the layout NZ: (pages, heads * D / 16, page size, 16)."""
        empty = torch.zeros(PAGES, HEADS * WIDTH // TILE, PAGE, TILE, dtype=torch.float16)
        caches = {"key_cache": empty, "value_cache": empty.clone()}
        return {**self.arguments(SCATTER_PAGES), **caches, "cache_mode": "PA_NZ"}

    def expected_tiled(self) -> Expected:
        """The same caches, each row cut into tiles."""
        caches = {
            name: np.asarray(cache).reshape(PAGES, PAGE, -1) for name, cache in self.expected(SCATTER_PAGES).items()
        }
        return {name: np.stack(np.split(cache, HEADS * WIDTH // TILE, axis=2), 1) for name, cache in caches.items()}


WRITTEN = {
    RESHAPE: ("key_cache", "value_cache"),
    SCATTER_PAGES: ("key_cache", "value_cache"),
    SCATTER: ("input",),
}


def _rows(count: int) -> torch.Tensor:
    return torch.arange(count * HEADS * WIDTH).view(count, HEADS, WIDTH).half()


STORED = Store(_rows(3), -_rows(3), torch.tensor([17, 3, 63], dtype=torch.int32))

#: Prefixes and new lengths: a new request, one in the middle of a page, one at the end of its page, one that stays.
PREFIXES, LENGTHS = (0, 5, 16, 7), (20, 40, 17, 7)
FREE = (9, 4, 7, 2, 11, 3)
LAST = (-1, 5 * PAGE + 4, 6 * PAGE + 15, 8 * PAGE + 6)


def allocation() -> Arguments:
    """The kernel takes its arguments by place, in this order."""
    tokens = sum(LENGTHS) - sum(PREFIXES)
    return {
        "prefix_lens": torch.tensor(PREFIXES),
        "seq_lens": torch.tensor(LENGTHS),
        "last_loc": torch.tensor(LAST),
        "free_pages": torch.tensor(FREE),
        "out": torch.full((tokens,), -7),
        "batch_size_bound": 4,
        "page_size": PAGE,
        "max_num_extend_tokens": 64,
    }


def allocated() -> Expected:
    """One position after another: the rest of the last page, then free pages in order."""
    free, slots = iter(FREE), []
    for prefix, length, last in zip(PREFIXES, LENGTHS, LAST, strict=True):
        for position in range(prefix, length):
            last = next(free) * PAGE if position % PAGE == 0 else last + 1
            slots.append(last)
    return {"out": np.array(slots)}


#: Rows of the table of slots, and of each the first position that is looked up, and the one behind the last.
SPANS = ((2, 3, 6), (0, 8, 10))
SLOT_TABLE = torch.arange(40, dtype=torch.int32).view(4, 10).flip(1)


def looking_up() -> Arguments:
    """Types as sglang has them."""
    rows, starts, ends = torch.tensor(SPANS).unbind(1)
    return {
        "req_indices": rows,
        "token_pool": SLOT_TABLE,
        "start_offset": starts,
        "end_offset": ends,
        "out_cache_loc": torch.full((int((ends - starts).sum()),), -7, dtype=torch.int32),
    }


def looked_up() -> Expected:
    """One position after another."""
    slots = SLOT_TABLE.tolist()
    found = [slots[row][position] for row, start, end in SPANS for position in range(start, end)]
    return {"out_cache_loc": np.array(found)}


_DOCUMENTED = {
    RESHAPE: "Write each token's key and value to its slot",
    SCATTER_PAGES: "Write each token's key and value to its slot",
    SCATTER: "Write each update to the place in `input` that its indices name",
}

CASES: tuple[Case, ...] = (
    *(
        accepted(
            f"{operator.removeprefix('npu.')} writes to its slots and to no other",
            Rule("cache_writes.py", words),
            Call(operator, partial(STORED.arguments, operator), written=WRITTEN[operator]),
            partial(STORED.expected, operator),
        )
        for operator, words in _DOCUMENTED.items()
    ),
    accepted(
        "npu_scatter_pa_kv_cache writes the tiles of its slots and no other in NZ",
        Rule("cache_writes.py", "In the layout NZ the cache is"),
        Call(SCATTER_PAGES, STORED.tiled, written=WRITTEN[SCATTER_PAGES]),
        STORED.expected_tiled,
    ),
    accepted(
        "an extension fills the page of its last slot, then takes free pages in order",
        Rule("kernels.py", "Assumption: as in sglang's own page allocator"),
        Call(ALLOCATE, allocation, written=("out",), grid=(4,)),
        allocated,
    ),
    accepted(
        "the slots of requests follow one another",
        Rule("kernels.py", "the KV slots of each request's positions from its start to its end, in turn"),
        Call(LOOK_UP, looking_up, written=("out_cache_loc",)),
        looked_up,
    ),
)
