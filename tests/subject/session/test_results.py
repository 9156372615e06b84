"""A result is read as it was published, unless the storage that it shares has been written to before."""

from types import SimpleNamespace

import pytest
import torch

from harness.scenario.observation import Changed
from harness.subject.session.results import Results


def result() -> SimpleNamespace:
    return SimpleNamespace(next_token_ids=torch.tensor([[4, 5], [6, 7]]), accept_lens=torch.tensor([2, 1]), other=None)


@pytest.fixture
def results() -> Results:
    return Results()


def test_a_result_that_nobody_writes_to_is_read_as_published(results: Results) -> None:
    first, second = result(), result()
    results.publish(first)
    results.publish(second)

    assert results.read(first) == results.read(second) == []


def test_storage_that_a_later_step_writes_to_is_seen_when_it_is_read(results: Results) -> None:
    buffer = torch.tensor([2, 1])
    first = result()
    first.accept_lens = buffer[:]
    results.publish(first)
    buffer[1] = 3

    assert results.read(first) == [Changed("result accept_lens", "int64", (2, 1), (2, 3))]


def test_a_copy_to_the_host_in_place_of_the_tensor_is_no_change(results: Results) -> None:
    first = result()
    results.publish(first)
    first.accept_lens = first.accept_lens.clone().to(torch.int32)
    first.next_token_ids = None

    assert results.read(first) == []


def test_a_result_that_was_never_published_is_nothing_to_judge(results: Results) -> None:
    assert results.read(result()) == []
