"""Accounting of the pages of a scheduler's KV pools, which hold the slots of its prefix tree and of its requests."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from harness.scenario.metadata import PADDING_PAGE
from harness.subject.session.book import IN_TREE, Book
from harness.subject.session.numbers import Integers, integers


class Accounts:
    """The books of a scheduler: one, or with a hybrid pool one for each of its two parts.

    In a hybrid pool every slot of the full part has its counterpart in the window part, or none any more; the pool's
    own table says which (`full_to_swa_index_mapping`, read in 0.5.17 to 0.5.23: 0 is none).
    """

    def __init__(self, scheduler: Any) -> None:
        allocator = scheduler.token_to_kv_pool_allocator
        self.tree = scheduler.tree_cache
        self.pool = scheduler.req_to_token_pool
        self.page_size = int(allocator.page_size)
        self._hybrid = allocator if hasattr(allocator, "swa_attn_allocator") else None
        full = allocator if self._hybrid is None else allocator.full_attn_allocator
        self.books = [Book(full)]
        if self._hybrid is not None:
            self.books.append(Book(allocator.swa_attn_allocator, window=True))

    def begin(self) -> None:
        """What is freed from now on is new."""
        for book in self.books:
            book.begin()

    def in_window(self, slots: Integers) -> Integers:
        """The slots of the window's pool for `slots` of the full one; 0 for those that have none any more."""
        if self._hybrid is None:
            return slots
        counterparts: Integers = integers(self._hybrid.full_to_swa_index_mapping)[slots]
        return counterparts

    def audit(self, requests: Iterable[Any]) -> str:
        """What is wrong with the books, in one sentence, or "" where they balance."""
        holders = list(self._holders(requests))
        for book in self.books:
            problem = book.audit((holder, self._pages(slots, book)) for holder, slots in holders)
            if problem:
                return problem
        return ""

    def _holders(self, requests: Iterable[Any]) -> Iterator[tuple[str, Integers]]:
        """Who holds which slots: the prefix tree first, then every request."""
        yield IN_TREE, np.concatenate([_NONE, *_tree_slots(self.tree)])
        table = integers(self.pool.req_to_token)
        for request in requests:
            row, length = row_of(request), _allocated(request)
            if row is not None:
                yield f"held by request {request.rid}", table[row, :length]

    def _pages(self, slots: Integers, book: Book) -> Integers:
        """The pages in `book` of slots of the full pool."""
        pages = np.unique(slots // self.page_size)
        if book.window:
            pages = np.unique(self.in_window(book.slots_of(pages)) // self.page_size)
        held: Integers = pages[pages != PADDING_PAGE]
        return held


_NONE = integers([])


def row_of(request: Any) -> int | None:
    """The request's row in the pool, or None where it has none."""
    owner = request if hasattr(request, "req_pool_idx") else request.kv
    return None if owner is None or owner.req_pool_idx is None else int(owner.req_pool_idx)


def _allocated(request: Any) -> int:
    """Positions of the request that have a slot; from 0.5.17 on they are told by an object of its own."""
    owner = request if hasattr(request, "kv_allocated_len") else request.kv
    return 0 if owner is None else int(owner.kv_allocated_len)


def _tree_slots(tree: Any) -> Iterator[Integers]:
    """The slots of every node of a prefix tree; none without one."""
    root = getattr(tree, "root_node", None)
    nodes = list(root.children.values()) if root is not None else []
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        # A node of the unified cache (of hybrid models) has a value for each kind of pool, the full one first.
        value = node.value if hasattr(node, "value") else node.component_data[0].value
        if value is not None:
            yield integers(value)
