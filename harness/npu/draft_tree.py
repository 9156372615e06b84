"""The operators of sgl_kernel_npu that arrange drafted tokens as a tree, and accept a path of it.

A request's tree has the token to be verified as node 0 and its drafted tokens as the others. `retrive_index` (so spelt)
is the place of each node among the tokens of the batch, `retrive_next_token` its first child, `retrive_next_sibling`
the next child of its parent, the last two -1 where there is none. Names: sglang's calls in
`kernels/ops/speculative/spec_tree.py`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from harness.npu.arguments import Arguments
from harness.npu.overloads import Operator, Traits, operator
from harness.npu.registry import emulates

_FULL_MASK, _AMONG_DRAFTS = 0, 1


def _parents(arguments: Arguments, chosen: npt.NDArray[Any], drafted_from: npt.NDArray[Any], topk: int) -> list[int]:
    """The parent of each node but the root.

    `chosen` numbers the nodes among all candidates, which are made in groups of `topk`: the first group is the root's,
    the group g the children of the candidate `drafted_from[g]`.
    """
    places = {int(candidate): node for node, candidate in reversed(list(enumerate(chosen, start=1)))}
    parents = [0 if group == 0 else places.get(int(drafted_from[group]), -1) for group in chosen // topk]
    # Assumption: what the device does without a parent need not be known, since no candidate scores above its parent.
    arguments.require_emulated(-1 not in parents, "selected_index", f"{chosen.tolist()}, where a parent is missing")
    return parents


@operator(writes=True)
def build_tree_kernel_efficient(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Write each tree's links, its nodes' positions, and which nodes each node may attend to.

    `tree_mask` is flat: for each request and node, one entry per position before the tree (mode 0 only, and those are
    left as they are), then one per node of the tree.
    """
    arguments = Arguments("build_tree_kernel_efficient")
    arguments.require_emulated(tree_mask_mode in (_FULL_MASK, _AMONG_DRAFTS), "tree_mask_mode", int(tree_mask_mode))
    nodes = draft_token_num
    requests = len(verified_seq_len)
    whole = list(selected_index.shape) == [requests, nodes - 1]
    arguments.require_shape(whole, "selected_index", selected_index, f"it must be {[requests, nodes - 1]}")
    for name, table in (
        ("retrive_index", retrive_index),
        ("retrive_next_token", retrive_next_token),
        ("retrive_next_sibling", retrive_next_sibling),
    ):
        arguments.require_shape(list(table.shape) == [requests, nodes], name, table, f"it must be {[requests, nodes]}")
    mask, start = tree_mask.numpy(), 0
    for request, length in enumerate(verified_seq_len.tolist()):
        parents = _parents(arguments, selected_index[request].numpy(), parent_list[request].numpy(), topk)
        children = retrive_next_token[request].numpy()
        siblings = retrive_next_sibling[request].numpy()
        for node in range(nodes - 1, 0, -1):  # so that the children of a node come in ascending order
            parent = parents[node - 1]
            siblings[node] = children[parent]
            children[parent] = node
        retrive_index[request] = torch.arange(nodes) + request * nodes
        seen = np.eye(nodes, dtype=bool)
        for node in range(1, nodes):  # a parent comes before its children
            seen[node] |= seen[parents[node - 1]]
        positions[request * nodes : (request + 1) * nodes] = torch.from_numpy(length + seen.sum(1) - 1)
        before = length if tree_mask_mode == _FULL_MASK else 0
        rows = mask[start : start + nodes * (before + nodes)].reshape(nodes, before + nodes)
        rows[:, before:] = seen
        start += rows.size


def verify_tree_greedy(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Accept, in each tree, the path of drafted tokens that the target predicts.

    Writes the path to `accept_index`, as places among the tokens of the batch, the root's first; how many nodes follow
    the root to `accept_token_num`; and to `predicts`, at the place of each node of the path, the target's next token.
    """
    tables = {
        "retrive_index": retrive_index,
        "retrive_next_token": retrive_next_token,
        "retrive_next_sibling": retrive_next_sibling,
        "target_predict": target_predict,
    }
    Arguments("verify_tree_greedy").require_shape_of("candidates", candidates, tables)
    longest = accept_index.shape[1]
    for request in range(len(candidates)):
        path = [0]
        while len(path) < longest:
            wanted = target_predict[request, path[-1]]
            node = int(retrive_next_token[request, path[-1]])
            # Assumption: where a child is not the wanted token, its siblings are tried. On a device: a tree whose
            # second child is right. A version of the device's kernel (sgl-kernel-npu, 05de9dfb) follows chains alone.
            while node != -1 and candidates[request, node] != wanted:
                node = int(retrive_next_sibling[request, node])
            if node == -1:
                break
            path.append(node)
        places = retrive_index[request, path]
        predicts[places] = target_predict[request, path].to(predicts.dtype)
        accept_index[request, : len(path)] = places.to(accept_index.dtype)
        accept_token_num[request] = len(path) - 1


emulates("sgl_kernel_npu.sample.verify_tree_greedy.verify_tree_greedy")(
    Operator(verify_tree_greedy, Traits(writes=True))
)
