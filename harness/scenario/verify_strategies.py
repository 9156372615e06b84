"""Hypothesis strategies for verify scenarios: one code path at a time, with ties and grammars drawn often.

What the target says is drawn first for each drafted token (it agrees, or it says something), so that whole blocks are
accepted or rejected as often as parts of them.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from harness.scenario.capability import DFLASH_GRAMMAR
from harness.scenario.validity import MAX_SEED, VERIFY_TREES
from harness.scenario.verify import CUDA_KERNELS, Path, Shape, Verifier, VerifyRequest, VerifyScenario

ALGORITHMS: tuple[Verifier, ...] = ("EAGLE", "NGRAM", "DFLASH", "DSPARK")
BLOCKS = (1, 2, 4, 8)
#: Enough for the largest block to be a root and its children. The last token also stands for the mask token that a
#: DFlash block is filled with.
VOCABULARY = 8
#: Logits of what the target does not say; close together, so that most rows have ties among them.
UNLIKELY = st.integers(0, 2)
MOST_REQUESTS = 4
#: Drawn tokens are counted; with so many the distributions of small blocks are told apart (see `checks/accept.py`).
DRAWS = 256
#: Of DSpark, whose accept code is Triton in some releases: its interpreter takes a tenth of a second for a few draws.
FEW_DRAWS = 32
SAMPLED_BLOCKS = (1, 2, 3)
TEMPERATURES = (1.0, 2.0, 4.0)
TOP_KS, TOP_PS = (0, 2, 3), (1.0, 0.9, 0.5, 0.1)


class VerifyCell(NamedTuple):
    """One code path of the accept rule; see the module's docstring."""

    algorithm: Verifier
    path: Path
    shape: Shape
    sampled: bool

    def __str__(self) -> str:
        return f"{self.algorithm} {self.path} {self.shape} {'sampled' if self.sampled else 'greedy'} verify"


def verify_cells(capabilities: Collection[str]) -> list[VerifyCell]:
    """Every cell that a subject with `capabilities` has, and that runs without a CUDA device."""
    paths: tuple[Path, ...] = ("ascend", "cuda")
    shapes: tuple[Shape, ...] = ("chain", "tree")
    return [
        VerifyCell(algorithm, path, shape, sampled)
        for algorithm in ALGORITHMS
        if algorithm in capabilities
        for sampled in (False, True)
        for path in paths
        if path == "ascend" or (algorithm, sampled) not in CUDA_KERNELS
        for shape in shapes
        if shape == "chain" or algorithm in VERIFY_TREES
    ]


@st.composite
def verifies(draw: st.DrawFn, cell: VerifyCell, capabilities: Collection[str] = ()) -> VerifyScenario:
    """Scenarios of `cell`; where they sample, at least the first request does."""
    if cell.sampled:
        return draw(_sampling(cell, capabilities))
    block = draw(st.sampled_from(_possible(cell, BLOCKS)), label="block")
    grammars = cell.algorithm != "DFLASH" or DFLASH_GRAMMAR in capabilities
    request = _requests(block, cell.shape == "tree", grammars)
    requests = draw(st.lists(request, min_size=1, max_size=MOST_REQUESTS), label="requests")
    return VerifyScenario(cell.algorithm, tuple(requests), cell.path)


def _possible(cell: VerifyCell, blocks: Sequence[int]) -> list[int]:
    """A tree has a drafted token, and so has every block of DSpark."""
    smallest = 2 if cell.shape == "tree" or cell.algorithm == "DSPARK" else 1
    return [block for block in blocks if block >= smallest]


@st.composite
def _sampling(draw: st.DrawFn, cell: VerifyCell, capabilities: Collection[str]) -> VerifyScenario:
    block = draw(st.sampled_from(_possible(cell, SAMPLED_BLOCKS)), label="block")
    grammars = cell.algorithm != "DFLASH" or DFLASH_GRAMMAR in capabilities
    request = _requests(block, cell.shape == "tree", grammars)
    drafts = cell.algorithm == "DSPARK"
    requests = [draw(_chances(request, block, drafts), label="request")]
    if draw(st.booleans(), label="another request"):
        other = draw(st.booleans(), label="it samples, too")
        requests.append(draw(_chances(request, block, drafts, samples=other), label="request"))
    draws = FEW_DRAWS if drafts else DRAWS
    seed = draw(st.integers(0, MAX_SEED), label="seed")
    scenario = VerifyScenario(cell.algorithm, tuple(requests), cell.path, draws, seed)
    if scenario.needs_cuda:  # to filter: leave that out
        unfiltered = tuple(replace(one, top_k=0, top_p=1.0) for one in scenario.requests if one.sampled)
        return replace(scenario, requests=unfiltered)
    return scenario


@st.composite
def _chances(
    draw: st.DrawFn, request: st.SearchStrategy[VerifyRequest], block: int, drafts: bool, samples: bool = True
) -> VerifyRequest:
    """`request` with logits that do not tie, so that filters are not ambiguous, and with its parameters."""
    drawn = draw(request)
    distinct = st.permutations(range(VOCABULARY))
    rows = [draw(distinct, label="logits") for _ in range(block)]
    for node, row in enumerate(rows):
        for child in drawn.children(node)[:1]:
            if draw(st.booleans(), label="agreement"):
                token, best = drawn.tokens[child], row.index(max(row))
                row[token], row[best] = row[best], row[token]
    drawn = replace(
        drawn,
        logits=tuple(map(tuple, rows)),
        draft_logits=tuple(tuple(draw(distinct, label="draft logits")) for _ in range(block - 1)) if drafts else (),
    )
    if not samples:
        return drawn
    return replace(
        drawn,
        temperature=draw(st.sampled_from(TEMPERATURES), label="temperature"),
        top_k=draw(st.sampled_from(TOP_KS), label="top_k"),
        top_p=draw(st.sampled_from(TOP_PS), label="top_p"),
    )


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
