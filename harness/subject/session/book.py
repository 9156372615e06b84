"""The pages of one allocator: every page is free, in the prefix tree, or held by a request.

allocated = committed + reserved + free, as sets: a page that is nowhere is lost, one in two places is written twice.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from harness.subject.session.numbers import Integers, integers

IN_TREE = "in the prefix tree"


class Book:
    """One allocator and what it would give away; `window` says that its pages are those of a sliding window's pool."""

    def __init__(self, allocator: Any, window: bool = False) -> None:
        self.window = window
        self.page_size = int(allocator.page_size)
        self.pages = int(allocator.size) // self.page_size
        self._allocator = allocator
        self.begin()

    def begin(self) -> None:
        """Look at the free pages; what is freed from now on is new."""
        self._free = self.free_pages()

    def freed(self) -> list[int]:
        """Look again: pages that have become free since the last call, or since the beginning."""
        before = self._free
        self.begin()
        return sorted(set(self._free.tolist()) - set(before.tolist()))

    def free_pages(self) -> Integers:
        """Pages that the allocator would give away."""
        allocator = self._allocator
        if hasattr(allocator, "get_all_free_pages"):
            return integers(allocator.get_all_free_pages())
        return np.concatenate([integers(allocator.free_pages), integers(allocator.release_pages)])

    def slots_of(self, pages: Iterable[int]) -> Integers:
        """The slots of `pages`."""
        first = np.array(sorted(pages), dtype=np.int64) * self.page_size
        return (first[:, np.newaxis] + np.arange(self.page_size)).reshape(-1)

    def audit(self, holders: Iterable[tuple[str, Integers]]) -> str:
        """What is wrong with this book, where `holders` say who holds which pages; "" where it balances.

        The free pages are those of the last look, by `begin` or `freed`.
        """
        free = self._free
        kind = "window page" if self.window else "page"
        twice = _repeated(free)
        if twice.size:
            return f"{kind} {twice[0]} is free twice ({_counted(twice)})"
        held: dict[int, str] = dict.fromkeys(free.tolist(), "free")
        for holder, pages in holders:
            for page in pages.tolist():
                # A request shares with the prefix tree, and what it shares was there first.
                if held.get(page, IN_TREE) != IN_TREE:
                    return f"{kind} {page} is {held[page]}, and {holder}"
                held.setdefault(page, holder)
        lost = np.array(sorted(set(range(1, self.pages + 1)) - set(held)))
        if lost.size:
            return f"{kind} {lost[0]} is neither free, nor in the prefix tree, nor held by a request ({_counted(lost)})"
        return ""


def _repeated(pages: Integers) -> Integers:
    values, counts = np.unique(pages, return_counts=True)
    found: Integers = values[counts > 1]
    return found


def _counted(pages: Integers) -> str:
    return "1 page" if len(pages) == 1 else f"{len(pages)} pages"
