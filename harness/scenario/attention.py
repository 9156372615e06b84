"""Strategies for scenarios where attention runs: those of the metadata, made small enough to compute."""

from collections.abc import Collection
from functools import partial

from hypothesis import strategies as st
from msgspec.structs import replace

from harness.scenario.capability import DP_PADDING, FIA_NZ, HEAD_SIZES
from harness.scenario.metadata import HEAD_SIZE, Attention, MetadataScenario, Request
from harness.scenario.strategies import Cell, scenarios
from harness.scenario.validity import LATENT_PAGE_SIZES, MOST_LATENT_QUERIES, NZ_PAGE_SIZE, pads, takes_sizes

HEADS = ((2, 1), (2, 2), (4, 1))  # query heads, KV heads
#: Where heads have other sizes: with two or more KV heads, none stands for all.
MORE_HEADS = (*HEADS, (4, 2))
#: Dimensions of keys and of values, as models have them: most, GPT-OSS and small Llamas, Qwen3.5 and Gemma, MiMo-V2.
SIZES = ((HEAD_SIZE, HEAD_SIZE), (64, 64), (256, 256), (192, 128))
#: Tokens or requests that pad.
PADDINGS = (0, 1, 3)
#: Of MLA: few, enough for a decode with FIA, and no power of two.
LATENT_HEADS = ((4, 1), (8, 1), (12, 1))
#: An MLA extend projects its whole prefix to keys of every head.
MOST_PROJECTED = 256
MOST_REQUESTS, MOST_TOKENS = 3, 48
#: A graph is replayed for one batch after the other.
MOST_ROUNDS = {"eager": 1, "graph": 2}
SMALLEST_WINDOW = 2
SMALLEST_PAGE = 16  # the operators take no smaller block


def attends(cell: Cell) -> bool:
    """Whether attention runs in `cell`: of linear attention no operator is emulated yet."""
    return cell.target != "gdn"


@st.composite
def attention_scenarios(draw: st.DrawFn, cell: Cell, capabilities: Collection[str] = ()) -> MetadataScenario:
    """Scenarios of `cell` whose host lengths are exact and int64, with few requests and tokens, and heads to compute.

    Among the capabilities, `fia-nz` adds MLA caches in the layout NZ, `head-sizes` heads of other sizes than 128, and
    `dp-padding` batches that are padded.

    An int32 host tensor is written to, which `inputs-unchanged` says once, and every step of a draft would say again.
    """
    drawn = draw(scenarios(cell))
    latent = cell.target == "mla"
    heads = LATENT_HEADS if latent else MORE_HEADS if HEAD_SIZES in capabilities else HEADS
    query_heads, kv_heads = draw(st.sampled_from(heads), label="heads")
    operators = [(fia, sinks) for fia in (False, True) for sinks in (False, True) if cell.target == "swa" or not sinks]
    fia, sinks = draw(st.sampled_from(operators), label="ASCEND_USE_FIA, sinks")
    nz = latent and FIA_NZ in capabilities and draw(st.booleans(), label="SGLANG_USE_FIA_NZ")
    attention = Attention(fia=fia, sinks=sinks, nz=nz, query_heads=query_heads, kv_heads=kv_heads)
    if HEAD_SIZES in capabilities and not latent:
        size, value_size = draw(st.sampled_from([*filter(partial(takes_sizes, attention), SIZES)]), label="head size")
        attention = replace(attention, head_size=size, value_size=value_size)
    if DP_PADDING in capabilities and pads(cell.mode, cell.executor, cell.target, fia):
        attention = replace(attention, padding=draw(st.sampled_from(PADDINGS), label="padding"))
    page = max(drawn.pool.page_size, SMALLEST_PAGE)
    if latent:
        page = page if page in LATENT_PAGE_SIZES and not nz else NZ_PAGE_SIZE
        drawn = replace(drawn, draft_tokens=min(drawn.draft_tokens, MOST_LATENT_QUERIES))
    most = drawn.draft_tokens if cell.mode == "draft_extend" else MOST_TOKENS
    filler = Request(prefix=1, new_tokens=1 if cell.mode == "draft_extend" else 0)  # for an idle round of a graph
    batches = [batch[:MOST_REQUESTS] or (filler,) for batch in drawn.rounds]
    rounds = tuple(tuple(_small(request, most) for request in batch) for batch in batches[: MOST_ROUNDS[cell.executor]])
    if latent and cell.mode == "extend":
        rounds = tuple(tuple(_after_whole_pages(request, page) for request in batch) for batch in rounds)
    committed = min(request.prefix for batch in rounds for request in batch) // page
    pool = replace(drawn.pool, page_size=page, rows=MOST_REQUESTS, shared_pages=min(drawn.pool.shared_pages, committed))
    window = max(drawn.window, SMALLEST_WINDOW) if drawn.window else 0
    rounds = _renumbered(rounds)
    return replace(drawn, attention=attention, rounds=rounds, pool=pool, window=window, host_dtype="int64")


def _after_whole_pages(request: Request, page: int) -> Request:
    """A prefix from the cache is whole pages (`PrefillAdder`, `RadixCache`: 0.5.15 to 0.5.23)."""
    return replace(request, prefix=min(request.prefix, MOST_PROJECTED) // page * page)


def _small(request: Request, most: int) -> Request:
    return replace(request, new_tokens=min(request.new_tokens, most), host_lag=0)


def _renumbered(rounds: tuple[tuple[Request, ...], ...]) -> tuple[tuple[Request, ...], ...]:
    """Rows 1 to n, ascending or descending as they were drawn."""
    order = [sorted(request.row for request in batch) for batch in rounds]
    return tuple(
        tuple(replace(request, row=rows.index(request.row) + 1) for request in batch)
        for batch, rows in zip(rounds, order, strict=True)
    )
