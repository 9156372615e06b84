"""The books of a hybrid pool: the window's pages are those that the full pool's pages still have."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.subject.session.accounts import Accounts

PAGE = 4


def accounts(counterparts: dict[int, int], free: list[int], window_free: list[int]) -> Accounts:
    """Row 1 has pages 1 and 2 of 4; `counterparts` are the window's pages, of which there are 3, of full ones."""

    def allocator(pages: int, given: list[int]) -> Any:
        nothing = torch.zeros(0, dtype=torch.int64)
        return SimpleNamespace(page_size=PAGE, size=pages * PAGE, free_pages=torch.tensor(given), release_pages=nothing)

    mapping = torch.zeros(5 * PAGE + 1, dtype=torch.int64)
    for page, counterpart in counterparts.items():
        mapping[page * PAGE : (page + 1) * PAGE] = torch.arange(counterpart * PAGE, (counterpart + 1) * PAGE)
    return Accounts(
        SimpleNamespace(
            token_to_kv_pool_allocator=SimpleNamespace(
                page_size=PAGE,
                full_attn_allocator=allocator(4, free),
                swa_attn_allocator=allocator(3, window_free),
                full_to_swa_index_mapping=mapping,
            ),
            tree_cache=SimpleNamespace(),
            req_to_token_pool=SimpleNamespace(req_to_token=torch.tensor([[0] * 8, [*range(4, 12)]])),
        )
    )


REQUEST = [SimpleNamespace(rid="0", req_pool_idx=1, kv_allocated_len=6)]


@pytest.mark.parametrize(
    ("counterparts", "window_free"),
    [({1: 3, 2: 1}, [2]), ({2: 1}, [2, 3]), ({2: 1, 4: 1}, [2, 3])],
    ids=["both", "the first has left the window", "what a free page had does not count"],
)
def test_books_that_balance_in_both_pools(counterparts: dict[int, int], window_free: list[int]) -> None:
    assert accounts(counterparts, [3, 4], window_free).audit(REQUEST) == ""


@pytest.mark.parametrize(
    ("counterparts", "free", "window_free", "sentence"),
    [
        ({1: 3, 2: 1}, [3], [2], "page 4 is neither free, nor in the prefix tree, nor held by a request (1 page)"),
        ({2: 1}, [3, 4], [2], "window page 3 is neither free, nor in the prefix tree, nor held by a request (1 page)"),
        ({1: 3, 2: 1}, [3, 4], [1, 2], "window page 1 is free, and held by request 0"),
        ({1: 3, 2: 1}, [3, 4], [2, 2], "window page 2 is free twice (1 page)"),
    ],
)
def test_a_page_that_is_lost_or_in_two_places_is_told_with_its_pool(
    counterparts: dict[int, int], free: list[int], window_free: list[int], sentence: str
) -> None:
    assert accounts(counterparts, free, window_free).audit(REQUEST) == sentence


def test_slots_of_the_window_are_the_counterparts_of_full_ones() -> None:
    books = accounts({1: 3}, [2, 3, 4], [1, 2])

    assert books.in_window(torch.tensor([4, 7, 8]).numpy()).tolist() == [12, 15, 0]
    assert [book.window for book in books.books] == [False, True]
