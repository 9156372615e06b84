"""A verify scenario: drafted tokens, the target's logits after each of them, and what each request asked for.

Logits are integers, so that they are the same in every floating-point type, ties are ties, and the JSON file of a
scenario is the whole bug report.
"""

from typing import Literal

import msgspec

Verifier = Literal["EAGLE", "NGRAM", "DFLASH", "DSPARK"]
Path = Literal["ascend", "cuda"]
Shape = Literal["chain", "tree"]

#: What the path of CUDA calls that is compiled for CUDA, by algorithm and whether any request samples: it cannot run
#: without such a device (`eagle_utils.py`, `dflash_utils.py`, 0.5.15 to 0.5.23). What is not here is torch or Triton,
#: but for filters of probabilities.
CUDA_KERNELS: dict[tuple[Verifier, bool], str] = {
    ("EAGLE", False): "verify_tree_greedy",
    ("EAGLE", True): "tree_speculative_sampling_target_only",
    ("NGRAM", False): "verify_tree_greedy",
    ("NGRAM", True): "tree_speculative_sampling_target_only",
    ("DFLASH", True): "tree_speculative_sampling_target_only",
}


class VerifyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request of a verify.

    `tokens[0]` is the token to be verified, the root; the others are drafted. `parents[n - 1]` is the node that node n
    follows; without parents the tokens are a chain. `logits[n]` has the target's logit of each token of the vocabulary
    after node n. `allowed[n]` are the tokens that a grammar lets follow node n; without it there is no grammar.

    `temperature` 0 is greedy, `top_k` 0 and `top_p` 1 filter nothing. `draft_logits[n]` are the logits by which the
    child of node n was drafted, where the algorithm accepts by them: a row for each node but the last.
    """

    tokens: tuple[int, ...]
    logits: tuple[tuple[int, ...], ...]
    parents: tuple[int, ...] = ()
    allowed: tuple[tuple[int, ...], ...] = ()
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    draft_logits: tuple[tuple[int, ...], ...] = ()

    @property
    def sampled(self) -> bool:
        """Whether tokens are drawn, rather than the most likely one taken."""
        return self.temperature > 0 and self.top_k != 1

    def children(self, node: int) -> list[int]:
        """The nodes that follow `node`, in order."""
        parents = self.parents or tuple(range(len(self.tokens) - 1))
        return [child for child, parent in enumerate(parents, start=1) if parent == node]

    def depth(self, node: int = 0) -> int:
        """Nodes of the longest path that begins with `node`, itself included."""
        return 1 + max((self.depth(child) for child in self.children(node)), default=0)


class VerifyScenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="verify"):
    """One verify of a batch by `algorithm`, on the path that the release takes on an NPU or on a CUDA GPU.

    It is done `draws` times at once, with chance from `seed`.
    """

    algorithm: Verifier
    requests: tuple[VerifyRequest, ...]
    path: Path = "ascend"
    draws: int = 1
    seed: int = 0

    @property
    def block(self) -> int:
        """Nodes of each request, the root included."""
        return len(self.requests[0].tokens)

    @property
    def vocabulary(self) -> int:
        """Tokens that there are."""
        return len(self.requests[0].logits[0])

    @property
    def shape(self) -> Shape:
        """Whether any request has a tree."""
        return "tree" if any(request.parents for request in self.requests) else "chain"

    @property
    def sampled(self) -> bool:
        """Whether any request samples: a batch takes one path."""
        return any(request.sampled for request in self.requests)

    @property
    def needs_cuda(self) -> str:
        """The CUDA kernel without which this path cannot run, or an empty string."""
        if self.path == "ascend":
            return ""
        return CUDA_KERNELS.get((self.algorithm, self.sampled), self._filters if self.sampled else "")

    @property
    def _filters(self) -> str:
        """The kernel that filters probabilities: `top_k` needs none where every request has one."""
        if any(request.top_p < 1 for request in self.requests):
            return "top_p_renorm_prob"
        limited = {0 < request.top_k < self.vocabulary or not request.sampled for request in self.requests}
        return "top_k_renorm_prob" if len(limited) > 1 else ""
