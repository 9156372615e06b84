"""The operators of sgl_kernel_npu that accept drafted tokens by chance, and those that filter probabilities for them.

Trees are linked as in `draft_tree`. Probabilities are of shape (requests, nodes, vocabulary), those of a node being the
target's after it. Chance is uniform numbers of 0 to below 1, which the caller draws. Names: sglang's calls in
`eagle_utils.py` (from 0.5.20), `dspark_accept.py` (from 0.5.21) and `dflash_utils.py`.
"""

import math

import numpy as np
import numpy.typing as npt
import torch

from harness.npu.arguments import Arguments
from harness.npu.overloads import Operator, Traits, operator
from harness.npu.registry import emulates

_PACKAGE = "sgl_kernel_npu.sample."
_Probabilities = npt.NDArray[np.float32]


def _draw(weights: _Probabilities, chance: float) -> int:
    """The first token at which the sum of weights passes `chance` of their total; else the last one with a weight."""
    sums = weights.cumsum(dtype=np.float32)
    token = int((sums <= np.float32(chance) * sums[-1]).sum())
    return token if token < len(weights) else int(np.flatnonzero(weights)[-1:].max(initial=0))


def tree_speculative_sampling_target_only(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Accept a path of each tree as the target's probabilities alone decide, and write it as a greedy verify does.

    The children of a node share its chance: each is accepted with its own probability. Behind the path a token is
    drawn from the target's probabilities without those of the children that were tried. A lower threshold accepts
    more: a child as likely as `threshold_single`, or probabilities that are divided by `threshold_acc`.
    `draft_probs` is memory that a device writes to, and `deterministic` changes nothing.
    """
    links = {
        "retrive_index": retrive_index,
        "retrive_next_token": retrive_next_token,
        "retrive_next_sibling": retrive_next_sibling,
        "uniform_samples": uniform_samples,
    }
    Arguments("tree_speculative_sampling_target_only").require_shape_of("candidates", candidates, links)
    chances, target = uniform_samples.numpy(), target_probs.numpy()
    acc = max(threshold_acc, 1e-9)
    for request, tokens in enumerate(candidates.tolist()):
        path, left = [0], target[request, 0]
        while len(path) < accept_index.shape[1]:
            likely, chance, total = target[request, path[-1]], chances[request, path[-1]], np.float32(0)
            left = likely.copy()
            node = int(retrive_next_token[request, path[-1]])
            while node != -1:
                probability = likely[tokens[node]]
                total += probability
                # Assumption: a drafted token of probability 0 is never accepted. On a device: one whose chance is 0. A
                # version of the device's operator (sgl-kernel-npu, 2c088476) accepts it.
                if probability > 0 and (chance < total / acc or probability >= threshold_single):
                    break
                left[tokens[node]] = 0
                node = int(retrive_next_sibling[request, node])
            if node == -1:
                break
            path.append(node)
            left = target[request, node]
        last = _draw(left, float(uniform_samples_for_final_sampling[request]))
        emitted = [*(tokens[node] for node in path[1:]), last]
        _write((predicts, accept_index, accept_token_num), retrive_index[request, path], request, emitted)


def chain_speculative_sampling_triton(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Accept the tokens of each chain by classic rejection, and write them as a greedy verify does.

    A token is accepted with the target's probability over the draft's, at most 1; the first one that is not is replaced
    by one that is drawn from what the target's probabilities are above the draft's, which has no row for the last node.
    """
    arguments = Arguments("chain_speculative_sampling_triton")
    shaped = {"retrive_index": retrive_index, "accept_index": accept_index, "uniform_samples": uniform_samples}
    arguments.require_shape_of("candidates", candidates, shaped)
    chances, target, draft = uniform_samples.numpy(), target_probs.numpy(), draft_probs.numpy()
    nodes = candidates.shape[1]
    rows = draft.shape[1] >= max(nodes - 1, 1) and draft.shape[2] == target.shape[2]
    arguments.require_shape(rows, "draft_probs", draft_probs, "it must have each draft's row")
    for request, tokens in enumerate(candidates.tolist()):
        path = [0]
        for node in range(1, nodes):
            token = tokens[node]
            if not chances[request, node - 1] * draft[request, node - 1, token] < target[request, node - 1, token]:
                break
            path.append(node)
        left = target[request, path[-1]]
        if len(path) < nodes:
            left = np.maximum(left - draft[request, path[-1]], 0)
        last = _draw(left, float(uniform_samples_for_final_sampling[request]))
        emitted = [*(tokens[node] for node in path[1:]), last]
        _write((predicts, accept_index, accept_token_num), retrive_index[request, path], request, emitted)


def _write(written: tuple[torch.Tensor, ...], places: torch.Tensor, request: int, emitted: list[int]) -> None:
    """Write a path: its places among the tokens of the batch, how many follow the root, and the token after each."""
    predicts, accept_index, accept_token_num = written
    predicts[places] = torch.tensor(emitted, dtype=predicts.dtype)
    accept_index[request, : len(places)] = places.to(accept_index.dtype)
    accept_token_num[request] = len(places) - 1


def top_k_renorm_prob(probs: torch.Tensor, top_ks: torch.Tensor) -> torch.Tensor:
    """Each row's `top_ks` largest probabilities, over their sum; 0 for the others.

    Assumption: of those that tie at the cut, the first ones of the row are kept. On a device: a row with such a tie.
    """
    largest, order = probs.sort(dim=-1, descending=True, stable=True)
    kept = torch.arange(probs.shape[-1]) < top_ks.view(-1, 1)
    return _renormalised(largest * kept, order)


def top_p_renorm_prob(probs: torch.Tensor, top_ps: torch.Tensor) -> torch.Tensor:
    """Each row's largest probabilities until they sum up to more than `top_ps`, over their sum; 0 for the others."""
    largest, order = probs.sort(dim=-1, descending=True, stable=True)
    kept = largest.cumsum(-1) - largest <= top_ps.view(-1, 1)
    return _renormalised(largest * kept, order)


@operator
def npu_top_k_top_p(logits: torch.Tensor, p: torch.Tensor | None = None, k: torch.Tensor | None = None) -> torch.Tensor:
    """Each row's `k` largest logits, and of these the largest until their softmax sums up to more than `p`; else -inf.

    Assumption: of those that tie at the cut of `k`, all are kept. On a device: a row with such a tie.
    """
    kept = logits
    if k is not None:
        largest = logits.sort(dim=-1, descending=True).values
        smallest = largest.gather(-1, k.view(-1, 1).long().clamp(1, logits.shape[-1]) - 1)
        kept = logits.masked_fill(logits < smallest, -math.inf)
    if p is not None:
        likely, order = kept.float().softmax(-1).sort(dim=-1, descending=True, stable=True)
        beyond = likely.cumsum(-1) - likely > p.view(-1, 1)
        kept = kept.masked_fill(torch.zeros_like(beyond).scatter(-1, order, beyond), -math.inf)
    return kept.clone()


def _renormalised(largest: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(largest).scatter(-1, order, largest / largest.sum(-1, keepdim=True))


for _accepting in (tree_speculative_sampling_target_only, chain_speculative_sampling_triton):
    emulates(f"{_PACKAGE}{_accepting.__name__}")(Operator(_accepting, Traits(writes=True)))
for _filtering in (top_k_renorm_prob, top_p_renorm_prob):
    emulates(f"{_PACKAGE}{_filtering.__name__}")(Operator(_filtering))
