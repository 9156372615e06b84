"""Trees of drafted tokens, held to trees that are given as parents."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch

from harness.conformance.trees import CHOSEN, DEPTH, DRAFTED_FROM, LENGTHS, PARENTS, TOPK, ancestors
from harness.npu.draft_tree import build_tree_kernel_efficient, verify_tree_greedy

FULL, AMONG_DRAFTS = 0, 1


class _Tree(NamedTuple):
    mask: torch.Tensor
    positions: torch.Tensor
    index: torch.Tensor
    child: torch.Tensor
    sibling: torch.Tensor


def _built(mode: int, chosen: Sequence[Sequence[int]] = CHOSEN) -> _Tree:
    before = sum(LENGTHS) if mode == FULL else 0
    links = [torch.full((2, 4), -1) for _ in range(3)]
    tree = _Tree(torch.full((4 * before + 2 * 16,), True), torch.full((8,), -1), *links)
    build_tree_kernel_efficient(
        torch.tensor(DRAFTED_FROM), torch.tensor(chosen), torch.tensor(LENGTHS), *tree, TOPK, DEPTH, 4, mode
    )
    return tree


@pytest.mark.parametrize("mode", [FULL, AMONG_DRAFTS])
def test_a_node_attends_to_what_is_before_the_tree_and_to_its_ancestors(mode: int) -> None:
    mask, start = _built(mode).mask.numpy(), 0
    for parents, length in zip(PARENTS, LENGTHS, strict=True):
        before = length if mode == FULL else 0
        for node in range(4):
            row = mask[start : start + before + 4]
            assert set(np.flatnonzero(row)) == set(range(before)) | {before + seen for seen in ancestors(parents, node)}
            start += len(row)
    assert start == len(mask)


def test_positions_grow_with_the_depth_of_a_node() -> None:
    assert _built(FULL).positions.tolist() == [5, 6, 7, 8, 2, 3, 3, 4]


def test_children_are_linked_in_order_and_nodes_have_their_place_in_the_batch() -> None:
    tree = _built(FULL)

    assert tree.index.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert tree.child.tolist() == [[1, 2, 3, -1], [1, 3, -1, -1]]
    assert tree.sibling.tolist() == [[-1, -1, -1, -1], [-1, 2, -1, -1]]


def test_a_node_without_its_parent_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="where a parent is missing"):
        _built(FULL, [CHOSEN[0], [0, 2, 4]])


def test_packed_masks_are_not_emulated() -> None:
    with pytest.raises(NotImplementedError, match="tree_mask_mode = 2"):
        _built(2)


def _accepted(candidates: list[list[int]], target: list[list[int]], longest: int = 4) -> tuple[list[list[int]], ...]:
    tree = _built(FULL)
    predicts = torch.zeros(8, dtype=torch.int32)
    index, count = torch.full((2, longest), -1, dtype=torch.int32), torch.full((2,), -1, dtype=torch.int32)
    verify_tree_greedy(
        predicts=predicts,
        accept_index=index,
        accept_token_num=count,
        candidates=torch.tensor(candidates),
        retrive_index=tree.index,
        retrive_next_token=tree.child,
        retrive_next_sibling=tree.sibling,
        target_predict=torch.tensor(target),
    )
    return index.tolist(), [count.tolist()], [predicts.tolist()]


def test_a_path_is_accepted_as_far_as_the_target_predicts_it() -> None:
    # The chain is right for two nodes; in the other tree the second child is right, and has none itself.
    index, count, predicts = _accepted([[9, 10, 11, 12], [9, 20, 21, 22]], [[10, 11, 50, 51], [21, 60, 61, 62]])

    assert index == [[0, 1, 2, -1], [4, 6, -1, -1]]
    assert count == [[2, 1]]
    assert predicts == [[10, 11, 50, 0, 21, 0, 61, 0]]


def test_nothing_is_accepted_that_the_target_does_not_predict() -> None:
    index, count, predicts = _accepted([[9, 10, 11, 12], [9, 20, 21, 22]], [[1, 11, 12, 13], [2, 22, 0, 0]])

    assert index == [[0, -1, -1, -1], [4, -1, -1, -1]]
    assert count == [[0, 0]]
    assert predicts == [[1, 0, 0, 0, 2, 0, 0, 0]]


def test_no_path_is_longer_than_its_record() -> None:
    index, count, _ = _accepted([[9, 10, 11, 12], [9, 20, 21, 22]], [[10, 11, 12, 13], [20, 22, 0, 23]], longest=2)

    assert index == [[0, 1], [4, 5]]
    assert count == [[1, 1]]
