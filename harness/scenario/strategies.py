"""Hypothesis strategies: one cell of the test space at a time, boundary lengths drawn often.

A cell fixes what code path is meant (algorithm, mode, executor, attention kind); everything else is drawn. Batches are
lists of requests, so that a failing batch shrinks to one request with the smallest lengths that still fail.
"""

from collections.abc import Collection
from typing import NamedTuple

from hypothesis import strategies as st
from msgspec.structs import replace

from harness.scenario.capability import ABSENT_HOST
from harness.scenario.convention import FAMILY
from harness.scenario.metadata import (
    Algorithm,
    Executor,
    HostDtype,
    HostView,
    MetadataScenario,
    Mode,
    Pool,
    Request,
    Target,
)
from harness.scenario.validity import MAX_DRAFT_TOKENS, MAX_REQUESTS, MODES, WRAPPED_MODES, least_prefix

PAGE_SIZES = (128, 64, 16, 1)
CONTEXT_LENGTHS = (256, 1000)
PAGE_STRIDES = (1, 3)
#: Blocks that users have, drawn as often as all others together: a subject keeps their backends warm.
COMMON_BLOCKS = (1, 4, 8, 16)
SMALL_POOL = 4
BUCKETS = ((1,), (4,), (1, 2, 4), (2, 8), (16, 64))
HOST_DTYPES: tuple[HostDtype, ...] = ("int64", "int32")

#: Modes whose host lengths come from an overlapped round, and so could lag; others are counted by the scheduler.
OVERLAPPING = ("target_verify", "draft_block", "draft_decode")

#: Attention kinds drawn per algorithm.
TARGETS: dict[Algorithm, tuple[Target, ...]] = {
    "NONE": ("mha", "mla", "swa", "gdn"),
    "EAGLE": ("mha", "mla", "swa", "gdn"),
    "DFLASH": ("mha", "mla", "swa", "gdn"),
    "DSPARK": ("mha", "swa", "gdn"),
}


class Cell(NamedTuple):
    """One code path; see the module's docstring. Algorithms that share it are drawn, the first one most simply."""

    algorithms: tuple[Algorithm, ...]
    mode: Mode
    executor: Executor
    target: Target

    def __str__(self) -> str:
        return f"{self.algorithms[0]} {self.mode} {self.executor} {self.target}"


def cells(capabilities: Collection[str]) -> list[Cell]:
    """Every cell that a subject with `capabilities` has: the named algorithms, and all attention kinds."""
    executors: tuple[Executor, ...] = ("eager", "graph")
    return [
        Cell(_sharing(algorithm, mode, capabilities), mode, executor, target)
        for algorithm, targets in TARGETS.items()
        if algorithm == "NONE" or algorithm in capabilities
        for mode in MODES[algorithm]
        for executor in executors
        for target in targets
        if not (mode == "extend" and executor == "graph")
        if not (mode == "draft_block" and target == "mla")
        if not (target == "gdn" and mode not in WRAPPED_MODES)
    ]


def _sharing(algorithm: Algorithm, mode: Mode, capabilities: Collection[str]) -> tuple[Algorithm, ...]:
    """`algorithm`, and those of `capabilities` that share its code and have `mode`."""
    relatives = (other for other, shared in FAMILY.items() if shared == algorithm and mode in MODES[other])
    return (algorithm, *(other for other in relatives if other in capabilities))


def boundary_prefixes(page_size: int, context_length: int, draft_tokens: int) -> list[int]:
    """Prefixes where something changes: around page ends (of prefix and of prefix + block) and the context end."""
    around = {0, 1}
    for pages in (1, 2, 3, context_length // page_size):
        end = pages * page_size
        around |= {end - 1, end, end + 1, end - draft_tokens - 1, end - draft_tokens, end - draft_tokens + 1}
    around |= set(range(context_length - draft_tokens, context_length + 1))
    return sorted(prefix for prefix in around if 0 <= prefix <= context_length)


@st.composite
def scenarios(draw: st.DrawFn, cell: Cell, capabilities: Collection[str] = ()) -> MetadataScenario:
    """Scenarios of `cell`; `absent-host` among the capabilities adds batches without host lengths."""
    algorithm = draw(st.sampled_from(cell.algorithms), label="algorithm")
    draft_tokens = draw(_draft_tokens(cell), label="draft_tokens")
    page_size = draw(st.sampled_from(PAGE_SIZES), label="page_size")
    context_length = draw(st.sampled_from(CONTEXT_LENGTHS), label="context_length")
    step = draw(st.integers(0, draft_tokens - 3), label="step") if cell.mode == "draft_decode" else 0
    windows = (1, page_size, page_size + 1, 100, context_length + MAX_DRAFT_TOKENS)
    window = draw(st.sampled_from(windows), label="window") if cell.target == "swa" else 0
    buckets = draw(st.sampled_from(BUCKETS), label="buckets") if cell.executor == "graph" else ()
    most = max(buckets) if buckets else draw(st.sampled_from((SMALL_POOL, MAX_REQUESTS)), label="largest batch")
    pool = Pool(
        page_size=page_size,
        context_length=context_length,
        rows=SMALL_POOL if most <= SMALL_POOL else MAX_REQUESTS,
        page_stride=draw(st.sampled_from(PAGE_STRIDES), label="page_stride"),
        page_offset=draw(st.integers(0, 1), label="page_offset"),
        shared_pages=draw(st.integers(0, 2), label="shared_pages"),
    )
    host_view = draw(_host_views(cell, capabilities), label="host_view")
    overlaps = cell.mode in OVERLAPPING and host_view == "published"
    lagging = overlaps and draw(st.booleans(), label="lagging")
    empty = MetadataScenario(
        algorithm=algorithm,
        mode=cell.mode,
        executor=cell.executor,
        target=cell.target,
        draft_tokens=draft_tokens,
        step=step,
        window=window,
        pool=pool,
        buckets=buckets,
        host_view=host_view,
        host_dtype=draw(st.sampled_from(HOST_DTYPES), label="host_dtype"),
        rounds=(),
    )
    batch = st.lists(_requests(empty, lagging), min_size=0 if buckets else 1, max_size=min(most, pool.rows))
    drawn = draw(st.lists(batch, min_size=1, max_size=4), label="rounds")
    descending = draw(st.booleans(), label="rows descend")
    return _with_rounds(empty, drawn, descending)


def _draft_tokens(cell: Cell) -> st.SearchStrategy[int]:
    """A multi-step draft has one backend a step, so its blocks are kept as short as users have them."""
    if cell.algorithms[0] == "NONE":
        return st.just(1)
    if cell.mode == "draft_decode":
        return st.integers(3, 5)
    return st.sampled_from(COMMON_BLOCKS) | st.integers(1, MAX_DRAFT_TOKENS)


def _with_rounds(empty: MetadataScenario, drawn: list[list[Request]], descending: bool) -> MetadataScenario:
    def rows(batch: list[Request]) -> tuple[Request, ...]:
        numbers = range(len(batch), 0, -1) if descending else range(1, len(batch) + 1)
        return tuple(replace(request, row=row) for request, row in zip(batch, numbers, strict=True))

    return replace(empty, rounds=tuple(rows(batch) for batch in drawn))


def _host_views(cell: Cell, capabilities: Collection[str]) -> st.SearchStrategy[HostView]:
    """Hybrid pools without host lengths are an experiment of 0.5.23 (it says so), and are left alone.

    The linear backend needs host lengths, and so they are published for its targets whatever the environment says.
    """
    views: list[HostView] = ["published"]
    if ABSENT_HOST in capabilities and cell.target not in ("swa", "gdn"):
        views.append("bound" if cell.algorithms[0] == "DFLASH" else "absent")
    return st.sampled_from(views)


@st.composite
def _requests(draw: st.DrawFn, scenario: MetadataScenario, lagging: bool) -> Request:
    pool, draft_tokens = scenario.pool, scenario.draft_tokens
    boundaries = boundary_prefixes(pool.page_size, pool.context_length, draft_tokens)
    needs_room = scenario.mode in ("extend", "decode")
    largest = pool.context_length - 1 if needs_room else pool.context_length
    least = least_prefix(scenario.target, scenario.mode)
    drawn = draw(st.integers(least, largest) | st.sampled_from(boundaries), label="prefix")
    prefix = max(min(drawn, largest), least)
    new_tokens = 0
    if scenario.mode == "extend":
        room = pool.context_length - prefix
        new_tokens = min(draw(st.integers(1, room) | st.sampled_from((1, pool.page_size)), label="new_tokens"), room)
    elif scenario.mode == "draft_extend":
        new_tokens = draw(st.integers(1, draft_tokens), label="accepted")
    request = Request(prefix=prefix, new_tokens=new_tokens)
    if not lagging:
        return request
    behind, ahead = min(2 * draft_tokens, prefix - least), min(2 * draft_tokens, pool.context_length - prefix)
    return Request(prefix=prefix, new_tokens=new_tokens, host_lag=draw(st.integers(-behind, ahead), label="host_lag"))
