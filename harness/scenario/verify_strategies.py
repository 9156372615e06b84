"""Hypothesis strategies for verify scenarios: one code path at a time, with ties and grammars drawn often.

What the target says is drawn first for each drafted token (it agrees, or it says something), so that whole blocks are
accepted or rejected as often as parts of them.
"""

from collections.abc import Collection
from typing import NamedTuple

from hypothesis import strategies as st

from harness.scenario.capability import DFLASH_GRAMMAR
from harness.scenario.validity import VERIFY_TREES
from harness.scenario.verify import CUDA_KERNELS, Path, Shape, Verifier, VerifyRequest, VerifyScenario

ALGORITHMS: tuple[Verifier, ...] = ("EAGLE", "NGRAM", "DFLASH", "DSPARK")
BLOCKS = (1, 2, 4, 8)
#: Enough for the largest block to be a root and its children. The last token also stands for the mask token that a
#: DFlash block is filled with.
VOCABULARY = 8
#: Logits of what the target does not say; close together, so that most rows have ties among them.
UNLIKELY = st.integers(0, 2)
MOST_REQUESTS = 4


class VerifyCell(NamedTuple):
    """One code path of the accept rule; see the module's docstring."""

    algorithm: Verifier
    path: Path
    shape: Shape

    def __str__(self) -> str:
        return f"{self.algorithm} {self.path} {self.shape} verify"


def verify_cells(capabilities: Collection[str]) -> list[VerifyCell]:
    """Every cell that a subject with `capabilities` has, and that runs without a CUDA device."""
    paths: tuple[Path, ...] = ("ascend", "cuda")
    shapes: tuple[Shape, ...] = ("chain", "tree")
    return [
        VerifyCell(algorithm, path, shape)
        for algorithm in ALGORITHMS
        if algorithm in capabilities
        for path in paths
        if path == "ascend" or (algorithm, False) not in CUDA_KERNELS
        for shape in shapes
        if shape == "chain" or algorithm in VERIFY_TREES
    ]


@st.composite
def verifies(draw: st.DrawFn, cell: VerifyCell, capabilities: Collection[str] = ()) -> VerifyScenario:
    """Greedy scenarios of `cell`."""
    smallest = 2 if cell.shape == "tree" else 1
    block = draw(st.sampled_from([block for block in BLOCKS if block >= smallest]), label="block")
    grammars = cell.algorithm != "DFLASH" or DFLASH_GRAMMAR in capabilities
    request = _requests(block, cell.shape == "tree", grammars)
    requests = draw(st.lists(request, min_size=1, max_size=MOST_REQUESTS), label="requests")
    return VerifyScenario(cell.algorithm, tuple(requests), cell.path)


@st.composite
def _requests(draw: st.DrawFn, block: int, tree: bool, grammars: bool) -> VerifyRequest:
    parents = tuple(draw(st.integers(0, child), label="parent") for child in range(block - 1)) if tree else ()
    drafted = _drafted(draw, parents or tuple(range(block - 1)))
    tokens = (draw(st.integers(0, VOCABULARY - 1), label="root"), *drafted)
    rows = [draw(st.lists(UNLIKELY, min_size=VOCABULARY, max_size=VOCABULARY), label="logits") for _ in range(block)]
    likely = st.sampled_from((0, 3, 3, 4))  # 4 beats a sibling or a forbidden token that has 3
    for parent, token in zip(parents or range(block - 1), drafted, strict=True):
        rows[parent][token] += draw(likely, label="agreement")
    allowed: tuple[tuple[int, ...], ...] = ()
    if grammars and draw(st.booleans(), label="grammar"):
        some = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=VOCABULARY, unique=True)
        allowed = tuple(tuple(sorted(draw(some, label="allowed"))) for _ in range(block))
    return VerifyRequest(tokens, tuple(map(tuple, rows)), parents, allowed)


def _drafted(draw: st.DrawFn, parents: tuple[int, ...]) -> tuple[int, ...]:
    """A token for each drafted node, such that siblings differ."""
    tokens: list[int] = []
    for node, parent in enumerate(parents):
        siblings = {token for token, other in zip(tokens, parents[:node], strict=True) if other == parent}
        tokens.append(draw(st.sampled_from([n for n in range(VOCABULARY) if n not in siblings]), label="token"))
    return tuple(tokens)
