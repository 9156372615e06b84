"""Real pools and allocators of sglang, filled so that every row holds the pages that the scenario gives it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from harness.scenario import content
from harness.scenario.metadata import MetadataScenario, PageMap
from harness.subject.ascend import linear, releases

DTYPE = torch.float32
HEADS, HEAD_SIZE = 1, 2  # where attention does not run, KV is kept as small as a pool allows
LORA_RANK, ROPE_SIZE = 2, 2


def latent_sizes(scenario: MetadataScenario) -> tuple[int, int]:
    """Dimensions of MLA's latents and of their rope parts."""
    if scenario.attention is None:
        return LORA_RANK, ROPE_SIZE
    return content.LATENT_SIZE, content.ROPE_SIZE


#: The number of a lone layer: a rank behind the first of a pipeline has layers that do not begin at 0.
FIRST_LAYER = 3

#: What decides which page lies where: stride, offset and shared pages of a pool.
Layout = tuple[int, int, int]


class Kinds(NamedTuple):
    """sglang's classes for one device: the pool of keys and values, that of MLA's latents, the paged allocator."""

    heads: Any
    latents: Any
    paged: Any


def npu_kinds() -> Kinds:
    """The classes of an NPU."""
    from sglang.srt.hardware_backend.npu.allocator_npu import NPUPagedTokenToKVPoolAllocator
    from sglang.srt.hardware_backend.npu.memory_pool_npu import NPUMHATokenToKVPool, NPUMLATokenToKVPool

    return Kinds(NPUMHATokenToKVPool, NPUMLATokenToKVPool, NPUPagedTokenToKVPoolAllocator)


class LayoutError(Exception):
    """The allocator did not hand out the pages in the order it was given: the driver does not know this release."""


class Pools:
    """`ReqToTokenPool`, the KV pool and its allocator for one geometry; `lay_out` fills the rows."""

    def __init__(
        self,
        scenario: MetadataScenario,
        device: str,
        kinds: Callable[[], Kinds] = npu_kinds,
        dtype: torch.dtype = DTYPE,
    ) -> None:
        pool = scenario.pool
        self.device = device
        self.dtype = dtype
        self.page_size = pool.page_size
        self.pages = PageMap(scenario).pages_per_row * pool.rows
        self.req_to_token_pool = _request_pool(scenario, device)
        self.hybrid = scenario.target == "swa"
        self.kv_pool = _kv_pool(scenario, self, self.pages * pool.page_size, device, kinds())
        self.allocator = _allocator(self, device, kinds())
        self.layout: Layout | None = None
        self.tables: dict[Layout, torch.Tensor] = {}
        self.mappings: dict[Layout, torch.Tensor] = {}

    def lay_out(self, scenario: MetadataScenario) -> None:
        """Make `req_to_token` (and the hybrid mapping) what `scenario.pool` says; kept per layout, so it is cheap."""
        pool = scenario.pool
        layout = (pool.page_stride, pool.page_offset, pool.shared_pages)
        if layout == self.layout:
            return
        if layout not in self.tables:
            self._allocate(scenario, layout)
        self.req_to_token_pool.req_to_token.copy_(self.tables[layout])
        if self.hybrid:
            self.kv_pool.full_to_swa_index_mapping.copy_(self.mappings[layout])
        self.layout = layout

    def _allocate(self, scenario: MetadataScenario, layout: Layout) -> None:
        """Hand every row its pages through the release's own allocator."""
        pages = PageMap(scenario)
        order = 1 + (np.arange(pages.pages) * pages.stride + pages.offset) % pages.pages
        self.allocator.clear()
        full = getattr(self.allocator, "full_attn_allocator", self.allocator)
        _set_free_pages(full, order, self.device)
        if self.hybrid:
            _set_free_pages(self.allocator.swa_attn_allocator, pages.swa_page(order), self.device)
        counts = [pages.pages_per_row] + [pages.own] * (scenario.pool.rows - 1)
        # On the host: on the emulated device, every row is some ten operators of Python.
        slots = self._slots(sum(counts) * self.page_size).to("cpu", torch.int32)
        row_slots = torch.split(slots, [count * self.page_size for count in counts])
        shared = row_slots[0][: pages.shared * self.page_size]
        table = torch.zeros(self.req_to_token_pool.req_to_token.shape, dtype=torch.int32)
        for row, own in enumerate(row_slots, start=1):
            whole = own if row == 1 else torch.cat([shared, own])
            table[row] = whole[: table.shape[1]]
        self._verify(table, pages)
        self.tables[layout] = table.to(self.device)
        if self.hybrid:
            self.mappings[layout] = self.kv_pool.full_to_swa_index_mapping.clone()

    def _slots(self, total: int) -> torch.Tensor:
        """The slots of whole pages, in the order of the free ones.

        All rows are one request to the allocator: it hands out the same pages, and from 200 pages on it takes 45
        operators for each request.
        """
        if self.page_size == 1:
            slots = self.allocator.alloc(total)
        else:
            none, length = torch.zeros(1, dtype=torch.int64), torch.tensor([total])
            slots = releases.call(
                self.allocator.alloc_extend,
                prefix_lens=none.to(self.device),
                prefix_lens_cpu=none,
                seq_lens=length.to(self.device),
                seq_lens_cpu=length,
                last_loc=(none - 1).to(self.device),
                extend_num_tokens=total,
            )
        if slots is None:
            raise LayoutError(f"the allocator has no {total} slots")
        return torch.as_tensor(slots)

    def _verify(self, table: torch.Tensor, pages: PageMap) -> None:
        """Rows must hold what the scenario says, or every expectation would be about another pool."""
        actual = (table[1:, :: self.page_size] // self.page_size).numpy()
        if not np.array_equal(actual, pages.grid(actual.shape[1])):
            raise LayoutError("the allocator handed out other pages than it was given")


def _request_pool(scenario: MetadataScenario, device: str) -> Any:
    from sglang.srt.mem_cache.memory_pool import ReqToTokenPool

    if scenario.target == "gdn":
        return linear.request_pool(scenario, device)
    return ReqToTokenPool(
        size=scenario.pool.rows,
        max_context_len=releases.row_columns(scenario),
        device=device,
        enable_memory_saver=False,
    )


#: A pool of one layer, number `FIRST_LAYER`.
_LONE: dict[str, Any] = {"layer_num": 1, "start_layer": FIRST_LAYER, "end_layer": FIRST_LAYER}


def _kv_pool(scenario: MetadataScenario, pools: Pools, size: int, device: str, kinds: Kinds) -> Any:
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool

    common: dict[str, Any] = {
        "size": size,
        "page_size": scenario.pool.page_size,
        "dtype": pools.dtype,
        "device": device,
        "enable_memory_saver": False,
    }
    if scenario.target == "mla":
        rank, rope = latent_sizes(scenario)
        common |= {"kv_lora_rank": rank, "qk_rope_head_dim": rope, "index_head_dim": None, **_LONE}
        return releases.call(kinds.latents, **common)
    heads = {"head_num": HEADS, "head_dim": HEAD_SIZE}
    if scenario.attention is not None:
        attention = scenario.attention
        heads = {"head_num": attention.kv_heads, "head_dim": attention.head_size, "v_head_dim": attention.value_size}
    if scenario.target == "swa":
        common.pop("enable_memory_saver")
        return SWAKVPool(
            size_swa=size,
            swa_attention_layer_ids=[1],
            full_attention_layer_ids=[0],
            token_to_kv_pool_class=kinds.heads,
            enable_memory_saver=False,
            **heads,
            **common,
        )
    if scenario.target == "gdn":
        return linear.kv_pool(pools.req_to_token_pool, **heads, **common)
    return kinds.heads(**_LONE, **heads, **common)


def _allocator(pools: Pools, device: str, kinds: Kinds) -> Any:
    from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
    from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator

    size = pools.pages * pools.page_size
    arguments = {
        "size": size,
        "size_swa": size,
        "page_size": pools.page_size,
        "dtype": pools.dtype,
        "device": device,
        "kvcache": pools.kv_pool,
        "need_sort": False,
        "req_to_token_pool": pools.req_to_token_pool,
    }
    if pools.hybrid:
        return releases.call(SWATokenToKVPoolAllocator, **arguments)
    return releases.call(TokenToKVPoolAllocator if pools.page_size == 1 else kinds.paged, **arguments)


def _set_free_pages(allocator: Any, order: npt.NDArray[np.int64], device: str) -> None:
    """Make `allocator` hand out its pages in `order`."""
    allocator.free_pages = torch.from_numpy(order.copy()).to(device)
    if hasattr(allocator, "release_pages"):
        allocator.release_pages = torch.empty(0, dtype=torch.int64, device=device)
