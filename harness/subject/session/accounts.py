"""Accounting of the pages of the KV pool: every page is free, in the prefix tree, or held by a request.

allocated = committed + reserved + free, as sets: a page that is nowhere is lost, one in two places is written twice.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from harness.subject.session.numbers import Integers, integers


class Accounts:
    """The books of one allocator of a scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self.allocator = scheduler.token_to_kv_pool_allocator
        self.tree = scheduler.tree_cache
        self.pool = scheduler.req_to_token_pool
        self.page_size = int(self.allocator.page_size)
        self.pages = int(self.allocator.size) // self.page_size

    def free_pages(self) -> Integers:
        """Pages that the allocator would give away."""
        allocator = self.allocator
        if hasattr(allocator, "get_all_free_pages"):
            return integers(allocator.get_all_free_pages())
        return np.concatenate([integers(allocator.free_pages), integers(allocator.release_pages)])

    def slots_of(self, pages: Iterable[int]) -> Integers:
        """The slots of `pages`."""
        first = np.array(sorted(pages), dtype=np.int64) * self.page_size
        return (first[:, np.newaxis] + np.arange(self.page_size)).reshape(-1)

    def audit(self, requests: Iterable[Any]) -> str:
        """What is wrong with the books, in one sentence, or "" where they balance."""
        free = self.free_pages()
        repeated = _repeated(free)
        if repeated.size:
            return f"page {repeated[0]} is free twice ({_counted(repeated)})"
        tree = self._pages_of(_tree_slots(self.tree))
        held: dict[int, str] = dict.fromkeys(free.tolist(), "free")
        for page in tree.tolist():
            if page in held:
                return f"page {page} is {held[page]}, and in the prefix tree"
            held[page] = "in the prefix tree"
        table = integers(self.pool.req_to_token)
        for request in requests:
            row, length = row_of(request), _allocated(request)
            if row is None:
                continue
            for page in self._pages_of([table[row, :length]]).tolist():
                holder = f"held by request {request.rid}"
                if held.get(page, "in the prefix tree") != "in the prefix tree":
                    return f"page {page} is {held[page]}, and {holder}"
                if page not in held:
                    held[page] = holder
        lost = sorted(set(range(1, self.pages + 1)) - set(held))
        if lost:
            return f"page {lost[0]} is neither free, nor in the prefix tree, nor held by a request ({len(lost)} pages)"
        return ""

    def _pages_of(self, slots: Iterable[Integers]) -> Integers:
        every = [np.zeros(0, dtype=np.int64), *slots]
        return np.unique(np.concatenate(every) // self.page_size)


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


def _repeated(pages: Integers) -> Integers:
    values, counts = np.unique(pages, return_counts=True)
    found: Integers = values[counts > 1]
    return found


def _counted(pages: Integers) -> str:
    return "1 page" if len(pages) == 1 else f"{len(pages)} pages"
