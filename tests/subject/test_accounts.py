"""The books of KV pages: what is lost, or in two places, is told; what balances is not."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from harness.subject.session.accounts import Accounts, row_of

PAGE = 4


def node(pages: list[int], *children: Any) -> Any:
    """A node of a prefix tree that has `pages`."""
    slots = [page * PAGE + place for page in pages for place in range(PAGE)]
    return SimpleNamespace(value=torch.tensor(slots), children=dict(enumerate(children)))


def unified(pages: list[int], *children: Any) -> Any:
    """The same as a node of the unified cache, which has a value for each kind of pool."""
    parts = [SimpleNamespace(value=node(pages).value), SimpleNamespace(value=None)]
    return SimpleNamespace(component_data=parts, children=dict(enumerate(children)))


def request(rid: str, row: int | None, allocated: int) -> Any:
    """A request with a row of the pool, and slots for so many positions."""
    return SimpleNamespace(rid=rid, req_pool_idx=row, kv_allocated_len=allocated)


def accounts(free: list[int], tree: Any = None, released: Sequence[int] = (), all_at_once: bool = False) -> Accounts:
    """Pages 1 to 6. Row 1 has pages 1 and 2, row 2 has 1 and 3; the allocator would give away `free` and `released`."""
    allocator = SimpleNamespace(page_size=PAGE, size=6 * PAGE)
    if all_at_once:
        allocator.get_all_free_pages = lambda: torch.tensor([*free, *released])
    else:
        allocator.free_pages = torch.tensor(free, dtype=torch.int64)
        allocator.release_pages = torch.tensor(released, dtype=torch.int64)
    table = torch.tensor([[0] * 8, [*range(4, 8), *range(8, 12)], [*range(4, 8), *range(12, 16)]], dtype=torch.int32)
    return Accounts(
        SimpleNamespace(
            token_to_kv_pool_allocator=allocator,
            tree_cache=SimpleNamespace(root_node=node([], *([] if tree is None else [tree]))),
            req_to_token_pool=SimpleNamespace(req_to_token=table),
        )
    )


BOTH = [request("0", 1, 7), request("1", 2, 8)]


@pytest.mark.parametrize(
    ("books", "requests"),
    [
        (accounts([1, 2, 3, 4, 5, 6]), []),
        (accounts([1, 2, 3], released=[6, 5, 4]), []),
        (accounts([1, 2, 3], released=[6, 5, 4], all_at_once=True), []),
        (accounts([4, 5, 6], node([1])), BOTH),
        (accounts([4, 5], node([1], node([6]))), BOTH),
        (accounts([4, 5], unified([1], unified([6]))), BOTH),
        (accounts([3, 4, 5, 6]), [request("0", 1, 5)]),
        (accounts([2, 3, 4, 5, 6]), [request("0", 1, 4)]),  # of its second page it has no position yet
        (accounts([1, 2, 3, 4, 5, 6]), [request("0", None, 0)]),
        (accounts([3, 4, 5, 6], node([1, 2])), [request("0", 1, 8)]),  # its prefix is the tree's
    ],
)
def test_books_in_which_every_page_has_one_place_balance(books: Accounts, requests: list[Any]) -> None:
    assert books.audit(requests) == ""


@pytest.mark.parametrize(
    ("books", "requests", "sentence"),
    [
        (
            accounts([4, 6], node([1])),
            BOTH,
            "page 5 is neither free, nor in the prefix tree, nor held by a request (1 page)",
        ),
        (
            accounts([4, 5, 6]),
            [request("0", 1, 4)],
            "page 2 is neither free, nor in the prefix tree, nor held by a request (2 pages)",
        ),
        (accounts([1, 2, 3, 4, 4, 5, 6]), [], "page 4 is free twice (1 page)"),
        (accounts([1, 2, 3, 4], released=[3, 4, 5, 6]), [], "page 3 is free twice (2 pages)"),
        (accounts([4, 5, 6]), BOTH, "page 1 is held by request 0, and held by request 1"),
        (accounts([2, 3, 4, 5, 6], node([1, 2])), [], "page 2 is free, and in the prefix tree"),
        (accounts([2, 3, 4, 5, 6], unified([1, 2])), [], "page 2 is free, and in the prefix tree"),
        (accounts([2, 3, 4, 5, 6]), [request("0", 1, 5)], "page 2 is free, and held by request 0"),
    ],
)
def test_books_that_do_not_balance_say_which_page_is_where(books: Accounts, requests: list[Any], sentence: str) -> None:
    assert sentence == books.audit(requests)


def test_without_a_prefix_tree_pages_are_free_or_held() -> None:
    books = accounts([3, 4, 5, 6])
    books.tree = SimpleNamespace()

    assert books.audit([request("0", 1, 8)]) == ""


@pytest.mark.parametrize(
    ("asked", "row"),
    [
        (request("0", 3, 0), 3),
        (request("0", None, 0), None),
        (SimpleNamespace(kv=SimpleNamespace(req_pool_idx=3)), 3),
        (SimpleNamespace(kv=None), None),
    ],
)
def test_a_request_has_its_row_itself_or_by_an_object_of_its_own(asked: Any, row: int | None) -> None:
    assert row == row_of(asked)


def test_the_slots_of_pages_are_in_order() -> None:
    assert np.array_equal(accounts([]).books[0].slots_of({5, 1}), [4, 5, 6, 7, 20, 21, 22, 23])


def test_what_becomes_free_is_told_once() -> None:
    books = accounts([4, 5])
    books.begin()
    (book,) = books.books
    allocator = book._allocator
    allocator.free_pages = torch.tensor([2, 3, 4, 5])

    assert book.freed() == [2, 3]
    allocator.free_pages = torch.tensor([3, 5])
    assert book.freed() == []
    allocator.free_pages = torch.tensor([2, 3, 5])
    assert book.freed() == [2]
