"""A metadata scenario: one pool, one attention kind, and the batches that go through it.

Terms are those of docs/contract.md: `prefix` is the committed prefix p, `draft_tokens` is D,
`page_size` is P. Every number is a plain integer, so the JSON file of a scenario is the whole bug report.
"""

from math import ceil, gcd
from typing import Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

Algorithm = Literal["NONE", "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH", "DSPARK"]
Mode = Literal["extend", "decode", "target_verify", "draft_block", "draft_decode", "draft_extend"]
Executor = Literal["eager", "graph"]
#: `gdn` is hybrid linear attention: full-attention layers beside Gated DeltaNet layers, which keep one state a request.
Target = Literal["mha", "mla", "swa", "gdn"]
HostView = Literal["published", "absent", "bound"]
HostDtype = Literal["int32", "int64"]

#: Page 0 is the padding page, and row 0 of `ReqToTokenPool` the padding row (all releases looked at).
PADDING_PAGE = 0
#: The slot of linear states that padded rows have; those of requests count from 1 (0.5.15 to 0.5.23).
PADDING_STATE = 0
#: Of a head's queries, keys and values where nothing else is said; of MLA without the rope part.
HEAD_SIZE = 128
#: Columns that `ReqToTokenPool` has beyond the context and the draft block (0.5.15 to 0.5.23).
SPARE_COLUMNS = 4


class Pool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Geometry of the KV pool and the map from logical positions to pages.

    Pages are handed out in the order `1 + (n * stride + page_offset) mod pages`, where `stride` is the smallest number
    not below `page_stride` that visits every page: 1 is one contiguous run, anything else is fragmented.
    The first `shared_pages` pages of every row are the same pages, as after a radix-cache hit.
    """

    page_size: int = 128
    context_length: int = 1024
    rows: int = 4
    page_stride: int = 1
    page_offset: int = 0
    shared_pages: int = 0


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a batch: its row in the pool, its committed prefix, what the step adds, and the host's view.

    `new_tokens` counts the tokens of an extend, or the accepted tokens of a draft extend. `host_lag` is what the
    host believes minus what the device has, in tokens: positive is ahead, negative is behind.
    """

    prefix: int
    row: int = 1
    new_tokens: int = 0
    host_lag: int = 0


class Attention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Attention really runs over the metadata, in float32, and over what the scenario's content module says.

    `head_size` is the dimension of a head's queries and keys, `value_size` that of its values and outputs; MLA's are
    128. `fia` is ASCEND_USE_FIA, which selects the operators; `fill` is what every slot holds that nobody has written.
    With `sinks`, each query head has one more score that has no value, as in gpt-oss and MiMo-V2. `nz` is
    SGLANG_USE_FIA_NZ: MLA's caches hold each page in the layout NZ, tiles of 16 numbers one after another. `padding` is
    how much pads an eager batch, as data parallelism does: tokens of an extend, requests of any other mode.
    """

    fia: bool = False
    query_heads: int = 2
    kv_heads: int = 1
    fill: float = 3.0
    sinks: bool = False
    nz: bool = False
    head_size: int = HEAD_SIZE
    value_size: int = HEAD_SIZE
    padding: int = 0


class MetadataScenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="metadata"):
    """Batches (`rounds`) that one backend builds metadata for, one after the other.

    In `graph`, the sizes in `buckets` are captured first, largest first; each round is then padded to the next
    bucket and replayed, and a round without requests is an idle rank. `builds` says how often each round is built.
    With `attention`, the operators run, too.
    """

    algorithm: Algorithm
    mode: Mode
    rounds: tuple[tuple[Request, ...], ...]
    executor: Executor = "eager"
    target: Target = "mha"
    draft_tokens: int = 1
    step: int = 0
    window: int = 0
    pool: Pool = Pool()
    buckets: tuple[int, ...] = ()
    host_view: HostView = "published"
    host_dtype: HostDtype = "int64"
    builds: int = 1
    attention: Attention | None = None

    @property
    def capacity(self) -> int:
        """Logical positions that have a page: the context and the most that any release reserves beyond it."""
        return self.pool.context_length + 2 * self.draft_tokens + self.pool.page_size + SPARE_COLUMNS

    @property
    def lagging(self) -> bool:
        """Whether the host's view differs from the device's for any request."""
        return any(request.host_lag for batch in self.rounds for request in batch)

    def state_slot(self, row: int) -> int:
        """The slot of the pool of linear states that the request in `row` holds: the other end of the pool."""
        return self.pool.rows + 1 - row

    def bucket(self, size: int) -> int:
        """Rows of the metadata built for `size` requests: the captured batch size, or `size` itself in eager."""
        if self.executor == "eager":
            return size
        return min(bucket for bucket in self.buckets if bucket >= size)


Pages = TypeVar("Pages", int, npt.NDArray[np.int64])


class PageMap:
    """Where each logical position of each row lies: the reading of `Pool`'s docstring as code."""

    def __init__(self, scenario: MetadataScenario) -> None:
        pool = scenario.pool
        self.page_size = pool.page_size
        self.rows = pool.rows
        self.pages_per_row = ceil(scenario.capacity / pool.page_size)
        self.shared = min(pool.shared_pages, self.pages_per_row)
        self.own = self.pages_per_row - self.shared
        self.pages = self.shared + pool.rows * self.own
        self.offset = pool.page_offset
        self.stride = max(pool.page_stride, 1)
        while gcd(self.stride, self.pages) != 1:
            self.stride += 1

    def page(self, row: int, index: int) -> int:
        """The page that holds positions `index * P` to `index * P + P - 1` of `row` (rows count from 1)."""
        number = index if index < self.shared else self.shared + (row - 1) * self.own + index - self.shared
        return 1 + (number * self.stride + self.offset) % self.pages

    def grid(self, columns: int) -> npt.NDArray[np.int64]:
        """`page(row, index)` of every row and the first `columns` indices, as one array."""
        indices = np.arange(columns)[np.newaxis, :]
        before = np.arange(self.rows)[:, np.newaxis] * self.own
        numbers = np.where(indices < self.shared, indices, before + indices)
        return 1 + (numbers * self.stride + self.offset) % self.pages

    def table(self, row: int, length: int) -> list[int]:
        """Pages of the first `length` positions of `row`, in order; `ceil(length / P)` of them."""
        return [self.page(row, index) for index in range(ceil(length / self.page_size))]

    def swa_page(self, page: Pages) -> Pages:
        """The page of the sliding-window pool that `page` of the full pool maps to: the other end of the pool.

        A hybrid pool has as many window pages as full pages here, so that every position is mapped.
        """
        return self.pages + 1 - page

    def swa_slot(self, slot: Pages) -> Pages:
        """The slot of the sliding-window pool that `slot` of the full pool maps to."""
        return self.swa_page(slot // self.page_size) * self.page_size + slot % self.page_size

    def slot(self, row: int, position: int) -> int:
        """KV slot of logical `position` of `row`."""
        return self.page(row, position // self.page_size) * self.page_size + position % self.page_size
