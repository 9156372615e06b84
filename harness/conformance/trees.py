"""Trees of drafted tokens: how they are built, and which path of them is accepted.

The references start from trees that are given as parents: `parents[n - 1]` is the parent of node n, node 0 the root.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule

BUILD = "npu.build_tree_kernel_efficient"
VERIFY = "sgl_kernel_npu.sample.verify_tree_greedy.verify_tree_greedy"

FULL_MASK, AMONG_DRAFTS = 0, 1
TOPK, DEPTH, NODES = 2, 3, 4
CHAIN = (0, 1, 2)
#: Two requests: a chain 0-1-2-3, and a root with the children 1 and 2, of which 1 has the child 3.
PARENTS = (CHAIN, (0, 0, 1))
LENGTHS = (5, 2)
#: The nodes as candidates. Candidates are made in groups of TOPK: the first is the root's, and group g holds the
#: children of the candidate `DRAFTED_FROM[g]`; there are TOPK * (DEPTH - 1) + 1 groups, as in sglang.
CHOSEN = ((0, 2, 6), (0, 1, 2))
DRAFTED_FROM = ((-1, 0, 1, 2, 4), (-1, 0, 1, 2, 3))


def ancestors(parents: Sequence[int], node: int) -> set[int]:
    """A node, its parent and so on, to the root."""
    return {node} if node == 0 else {node} | ancestors(parents, parents[node - 1])


def children(parents: Sequence[int], node: int) -> list[int]:
    """The children of a node, in order."""
    return [child for child, parent in enumerate(parents, start=1) if parent == node]


def links(trees: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """The place of each node in the batch, its first child, and the next child of its parent; -1 where none is."""
    first = [[(*children(parents, node), -1)[0] for node in range(NODES)] for parents in trees]
    following = [[-1] * NODES for _ in trees]
    for parents, siblings in zip(trees, following, strict=True):
        for node in range(NODES):
            family = children(parents, node)
            for child, sibling in pairwise(family):
                siblings[child] = sibling
    return {
        "retrive_index": torch.arange(len(trees) * NODES).view(-1, NODES),
        "retrive_next_token": torch.tensor(first),
        "retrive_next_sibling": torch.tensor(following),
    }


def _empty_mask(mode: int) -> torch.Tensor:
    """A mask in which every third entry is set, so that it is seen what is left as it was."""
    before = sum(LENGTHS) if mode == FULL_MASK else 0
    return torch.arange(NODES * (before + len(LENGTHS) * NODES)) % 3 == 0


def building(mode: int) -> Arguments:
    """Types as sglang has them."""
    return {
        "parent_list": torch.tensor(DRAFTED_FROM),
        "selected_index": torch.tensor(CHOSEN),
        "verified_seq_len": torch.tensor(LENGTHS),
        "tree_mask": _empty_mask(mode),
        "positions": torch.full((len(LENGTHS) * NODES,), -7),
        **{name: torch.full_like(table, -1) for name, table in links(PARENTS).items()},
        "topk": TOPK,
        "depth": DEPTH,
        "draft_token_num": NODES,
        "tree_mask_mode": mode,
    }


def built(mode: int) -> Expected:
    """A node sees its ancestors, and stands behind as many of them as it has."""
    mask, positions = _empty_mask(mode).numpy(), []
    start = 0
    for parents, length in zip(PARENTS, LENGTHS, strict=True):
        for node in range(NODES):
            start += length if mode == FULL_MASK else 0
            seen = ancestors(parents, node)
            mask[start : start + NODES] = [other in seen for other in range(NODES)]
            positions.append(length + len(seen) - 1)
            start += NODES
    tables = {name: table.numpy() for name, table in links(PARENTS).items()}
    return {"tree_mask": mask, "positions": np.array(positions), **tables}


class Verification(NamedTuple):
    """Trees, the token of each node, the target's token after each node, and how long a path may be."""

    trees: Sequence[Sequence[int]]
    candidates: Sequence[Sequence[int]]
    target: Sequence[Sequence[int]]
    longest: int

    def arguments(self) -> Arguments:
        """What is written is empty before, as in sglang."""
        requests = len(self.trees)
        return {
            "predicts": torch.zeros(requests * NODES, dtype=torch.int32),
            "accept_index": torch.full((requests, self.longest), -1, dtype=torch.int32),
            "accept_token_num": torch.full((requests,), -7, dtype=torch.int32),
            "candidates": torch.tensor(self.candidates),
            **links(self.trees),
            "target_predict": torch.tensor(self.target),
        }

    def expected(self) -> Expected:
        """The path of each tree, and the target's tokens along it."""
        predicts = np.zeros(len(self.trees) * NODES, dtype=np.int32)
        index = np.full((len(self.trees), self.longest), -1, dtype=np.int32)
        counts = []
        for request, (parents, tokens, wanted) in enumerate(zip(self.trees, self.candidates, self.target, strict=True)):
            path = [0]
            while right := [node for node in children(parents, path[-1]) if tokens[node] == wanted[path[-1]]]:
                path.append(right[0])
            for step, node in enumerate(path):
                index[request, step] = request * NODES + node
                predicts[request * NODES + node] = wanted[node]
            counts.append(len(path) - 1)
        return {"predicts": predicts, "accept_index": index, "accept_token_num": np.array(counts)}


_TOKENS = ((9, 10, 11, 12), (9, 20, 21, 22))
#: Two tokens are right; only later ones are; all are.
CHAINS = Verification(
    (CHAIN, CHAIN, CHAIN),
    (*_TOKENS, (9, 30, 31, 32)),
    ((10, 11, 50, 51), (1, 21, 22, 23), (30, 31, 32, 33)),
    NODES,
)
#: The first child is right, and its own is not; the second child is right, and its own is as well.
BRANCHES = Verification(((0, 0, 1), (0, 0, 2)), _TOKENS, ((10, 50, 51, 52), (21, 60, 22, 63)), DEPTH)


def _verification(name: str, rule: Rule, made: Verification) -> Case:
    written = ("predicts", "accept_index", "accept_token_num")
    return accepted(name, rule, Call(VERIFY, made.arguments, written=written), made.expected)


_BUILT = ("tree_mask", "positions", "retrive_index", "retrive_next_token", "retrive_next_sibling")

CASES: tuple[Case, ...] = (
    *(
        accepted(name, Rule("draft_tree.py", words), Call(BUILD, partial(building, mode), written=_BUILT),
                 partial(built, mode))
        for name, words, mode in (
            ("a tree is linked, and its mask leaves what is before the tree", "left as they are), then one per node",
             FULL_MASK),
            ("a tree is linked, and its mask is among its nodes alone", "before the tree (mode 0 only",
             AMONG_DRAFTS),
        )
    ),
    _verification("a chain is accepted as far as the target predicts it",
                  Rule("draft_tree.py", "Accept, in each tree, the path of drafted tokens that the target predicts"),
                  CHAINS),
    _verification("a path leads over siblings, and its record is as long as the tree is deep",
                  Rule("draft_tree.py", "Assumption: where a child is not the wanted token, its siblings are tried"),
                  BRANCHES),
)  # fmt: skip
