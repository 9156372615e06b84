"""Drafted tokens accepted by chance: over all chances it is the target's distribution. Wrong shapes are refused."""

from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch

from harness.npu.draft_sampling import (
    chain_speculative_sampling_triton,
    npu_top_k_top_p,
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
)

#: Eighths, and chances in the middle of them.
TARGET = torch.tensor([0.5, 0.25, 0.125, 0.125])
CHANCES = [(eighth + 0.5) / 8 for eighth in range(8)]


def arguments(chances: list[tuple[float, float]], tokens: list[int], siblings: bool) -> dict[str, Any]:
    """A request for each pair of chances: the root's and the last token's."""
    requests, nodes = len(chances), len(tokens)
    following = [1, *[-1] * (nodes - 1)] if siblings else [*range(1, nodes), -1]
    beside = [-1, *range(2, nodes), -1] if siblings else [-1] * nodes
    return {
        "predicts": torch.zeros(requests * nodes, dtype=torch.int32),
        "accept_index": torch.full((requests, nodes), -1, dtype=torch.int32),
        "accept_token_num": torch.zeros(requests, dtype=torch.int32),
        "candidates": torch.tensor([tokens] * requests),
        "retrive_index": torch.arange(requests * nodes).view(requests, nodes),
        "retrive_next_token": torch.tensor([following] * requests),
        "retrive_next_sibling": torch.tensor([beside] * requests),
        "uniform_samples": torch.tensor([[first] * nodes for first, _ in chances]),
        "uniform_samples_for_final_sampling": torch.tensor([last for _, last in chances]),
        "target_probs": TARGET.expand(requests, nodes, -1).clone(),
        "draft_probs": torch.zeros(requests, nodes, len(TARGET)),
    }


def first_tokens(given: dict[str, Any]) -> Counter[int]:
    return Counter(given["predicts"].view(given["candidates"].shape)[:, 0].tolist())


@pytest.mark.parametrize("drafted", [(0,), (1, 0), (3, 2), (2, 1, 0)], ids=str)
def test_over_all_chances_a_tree_emits_the_target_s_distribution(drafted: tuple[int, ...]) -> None:
    given = arguments(list(product(CHANCES, CHANCES)), [9, *drafted], siblings=True)
    tree_speculative_sampling_target_only(**given)

    left = sum(TARGET[token].item() for token in range(4) if token not in drafted)
    assert {token: count / 64 for token, count in first_tokens(given).items() if token in drafted} == {
        token: TARGET[token].item() for token in drafted
    }
    assert sum(count for token, count in first_tokens(given).items() if token not in drafted) / 64 == left


def test_a_chain_accepts_by_the_ratio_and_replaces_by_what_the_target_has_above_the_draft() -> None:
    given = arguments(list(product(CHANCES, CHANCES)), [9, 2], siblings=False)
    given["draft_probs"][:] = torch.tensor([0.25, 0.25, 0.25, 0.25])
    chain_speculative_sampling_triton(**given)

    assert first_tokens(given) == {2: 32, 0: 32}
    assert given["accept_token_num"].sum() == 32


@pytest.mark.parametrize("operator", [tree_speculative_sampling_target_only, chain_speculative_sampling_triton])
@pytest.mark.parametrize("name", ["retrive_index", "uniform_samples"])
def test_a_table_of_another_shape_is_refused_by_its_name(operator: Any, name: str) -> None:
    given = arguments([(0.1, 0.1)], [9, 0], siblings=False)
    given[name] = given[name][:, :1]

    with pytest.raises(RuntimeError, match=rf"{name} is of shape \[1, 1\]: it must be that of candidates, \[1, 2\]"):
        operator(**given)


def test_a_draft_without_a_row_for_each_token_is_refused() -> None:
    given = arguments([(0.1, 0.1)], [9, 0, 1], siblings=False)
    given["draft_probs"] = given["draft_probs"][:, :1]

    with pytest.raises(RuntimeError, match="draft_probs is of shape"):
        chain_speculative_sampling_triton(**given)


def test_filters_of_probabilities_and_of_logits_agree() -> None:
    logits = torch.tensor([[0.5, 3.0, -1.0, 2.0, 0.0], [1.0, 0.0, 4.0, 3.5, -2.0]])
    k, p = torch.tensor([3, 2], dtype=torch.int32), torch.tensor([0.8, 0.9])
    probs = logits.softmax(-1)

    assert torch.allclose(npu_top_k_top_p(logits, None, k).softmax(-1), top_k_renorm_prob(probs, k))
    assert torch.allclose(npu_top_k_top_p(logits, p).softmax(-1), top_p_renorm_prob(probs, p))
    both = npu_top_k_top_p(logits, p, k).softmax(-1)
    assert torch.allclose(both, top_p_renorm_prob(top_k_renorm_prob(probs, k), p))
