"""Drafted tokens that are accepted by chance: the chances are given, so that what comes of them is certain.

Probabilities are eighths, and chances lie between their sums, so that no rounding decides.
"""

import numpy as np
import torch

from harness.conformance.calls import Arguments, Call, Expected, accepted
from harness.conformance.case import Case, Rule

_PACKAGE = "sgl_kernel_npu.sample."
TREE, CHAIN = f"{_PACKAGE}tree_speculative_sampling_target_only", f"{_PACKAGE}chain_speculative_sampling_triton"
TOP_K, TOP_P = f"{_PACKAGE}top_k_renorm_prob", f"{_PACKAGE}top_p_renorm_prob"

_WRITTEN = ("predicts", "accept_index", "accept_token_num")
_NONE = -1
#: Of each node, the probabilities of the tokens 0 to 3.
_TARGET = torch.tensor([[0.125, 0.5, 0.25, 0.125], [0.25, 0.25, 0.125, 0.375], [0.5, 0.0, 0.25, 0.25]])
_DRAFT = torch.tensor([[0.0, 0.75, 0.25, 0.0], [0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]])


def _verifying(chances: list[float], last: float, tree: bool) -> Arguments:
    """Token 1, and token 2 beside it (in a tree) or after it; `chances` by node, and that of the last token."""
    following, siblings = ([1, _NONE, _NONE], [_NONE, 2, _NONE]) if tree else ([1, 2, _NONE], [_NONE] * 3)
    return {
        "predicts": torch.zeros(3, dtype=torch.int32),
        "accept_index": torch.full((1, 2 if tree else 3), _NONE, dtype=torch.int32),
        "accept_token_num": torch.full((1,), -7, dtype=torch.int32),
        "candidates": torch.tensor([[3, 1, 2]]),
        "retrive_index": torch.tensor([[0, 1, 2]]),
        "retrive_next_token": torch.tensor([following]),
        "retrive_next_sibling": torch.tensor([siblings]),
        "uniform_samples": torch.tensor([chances]),
        "uniform_samples_for_final_sampling": torch.tensor([last]),
        "target_probs": _TARGET[None].clone(),
        "draft_probs": torch.zeros(1, 3, 4) if tree else _DRAFT[None].clone(),
        "threshold_single": 1.0,
        "threshold_acc": 1.0,
        "deterministic": True,
    }


def _written(predicts: list[int], path: list[int]) -> Expected:
    return {
        "predicts": np.array(predicts),
        "accept_index": np.array([path]),
        "accept_token_num": np.array([sum(place != _NONE for place in path) - 1]),
    }


def _never() -> Arguments:
    """Token 2 follows token 1, after which it has probability 0; its chance is 0."""
    given = _verifying([0.25, 0.0, 0.0], 0.1, tree=False)
    target = given["target_probs"].clone()
    target[0, 1, 2], target[0, 1, 3] = 0.0, 0.5
    return {**given, "target_probs": target, "draft_probs": torch.zeros(1, 3, 4)}


#: The last two tie at the cut of two.
_ROW = torch.tensor([[0.125, 0.5, 0.1875, 0.1875], [0.25, 0.0, 0.5, 0.25]])

_LOGITS = torch.tensor([[-3.0, 2.0, 1.0, 1.0], [-3.0, -3.0, 3.0, 0.0]])

CASES: tuple[Case, ...] = (
    # A chance of 5/8 is beyond token 1 (1/2) and within tokens 1 and 2 (3/4): node 2, after which 1/10 draws token 0.
    accepted("the second child is accepted by the chance that the first one was not",
             Rule("draft_sampling.py", "The children of a node share its chance: each is accepted with"),
             Call(TREE, lambda: _verifying([0.625, 0.9, 0.9], 0.1, tree=True), written=_WRITTEN),
             lambda: _written([2, 0, 0], [0, 2])),
    # 7/8 is beyond both. What is left is 1/8 each of tokens 0 and 3, of which 6/10 draws token 3.
    accepted("what is drawn behind rejected children is none of them",
             Rule("draft_sampling.py", "drawn from the target's probabilities without those of the children"),
             Call(TREE, lambda: _verifying([0.875, 0.9, 0.9], 0.6, tree=True), written=_WRITTEN),
             lambda: _written([3, 0, 0], [0, _NONE])),
    # Token 1 is accepted below 2/3. Token 2, below 1/4, is not by 1/2: of 1/4 each of the tokens 0 and 1, 6/10 draws 1.
    accepted("a chain is accepted by classic rejection",
             Rule("draft_sampling.py", "A token is accepted with the target's probability over the draft's, at most 1"),
             Call(CHAIN, lambda: _verifying([0.625, 0.5, 0.9], 0.6, tree=False), written=_WRITTEN),
             lambda: _written([1, 1, 0], [0, 1, _NONE])),
    # After token 1, of 1/4 each of tokens 0 and 1 and 1/2 of token 3, 1/10 draws token 0.
    accepted("a drafted token without probability is not accepted by a chance of 0",
             Rule("draft_sampling.py", "Assumption: a drafted token of probability 0 is never accepted"),
             Call(TREE, _never, written=_WRITTEN),
             lambda: _written([1, 0, 0], [0, 1, _NONE])),
    accepted("the largest probabilities are kept",
             Rule("draft_sampling.py", "Assumption: of those that tie at the cut, the first ones of the row are kept"),
             Call(TOP_K, lambda: {"probs": _ROW, "top_ks": torch.tensor([2, 1], dtype=torch.int32)}),
             lambda: {"output": np.array([[0, 8 / 11, 3 / 11, 0], [0, 0, 1, 0]])}),
    # 1/2 alone is not more than 0.6, and the next one passes it; of the other row 1/2 is.
    accepted("probabilities are kept until they sum up to enough",
             Rule("draft_sampling.py", "largest probabilities until they sum up to more than `top_ps`"),
             Call(TOP_P, lambda: {"probs": _ROW, "top_ps": torch.tensor([0.6, 0.4])}),
             lambda: {"output": np.array([[0, 8 / 11, 3 / 11, 0], [0, 0, 1, 0]])}),
    accepted("logits are kept as far as the largest ones reach, and those that tie with them",
             Rule("draft_sampling.py", "Assumption: of those that tie at the cut of `k`, all are kept"),
             Call("npu.npu_top_k_top_p", lambda: {"logits": _LOGITS, "k": torch.tensor([2, 1], dtype=torch.int32)}),
             lambda: {"output": np.array([[-np.inf, 2, 1, 1], [-np.inf, -np.inf, 3, -np.inf]])}),
    # The softmax of the first row is 0.57, 0.21, 0.21 and less, of the second nearly all of it is its third.
    accepted("logits are kept until their softmax sums up to enough",
             Rule("draft_sampling.py", "of these the largest until their softmax sums up to more than `p`"),
             Call("npu.npu_top_k_top_p", lambda: {"logits": _LOGITS, "p": torch.tensor([0.5, 0.9])}),
             lambda: {"output": np.array([[-np.inf, 2, -np.inf, -np.inf], [-np.inf, -np.inf, 3, -np.inf]])}),
)  # fmt: skip
