"""The strategies, the sweep and the rules: what is drawn can be, what matters is drawn, and nothing is left out."""

from collections.abc import Iterable, Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.scenario import GateScenario, MetadataScenario, Pool, Request, Scenario
from harness.scenario.attention import SIZES, attends, attention_scenarios
from harness.scenario.capability import missing
from harness.scenario.convention import CONVENTION, DFLASH_FAMILY
from harness.scenario.metadata import Attention
from harness.scenario.strategies import Cell, boundary_prefixes, cells, scenarios
from harness.scenario.sweep import sweep, sweep_prefixes
from harness.scenario.validity import MODES, why_invalid
from tests.ideal import CAPABILITIES, CELLS, CONTRACT_EXAMPLE, SAME, drawn


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_drawn_scenario_can_be(cell: Cell) -> None:
    for scenario in drawn(cell):
        assert why_invalid(scenario) == "", scenario


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_drawn_scenario_is_of_its_cell(cell: Cell) -> None:
    for scenario in drawn(cell):
        assert scenario.algorithm in cell.algorithms
        assert cell[1:] == (scenario.mode, scenario.executor, scenario.target)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_a_scenario_survives_json(cell: Cell) -> None:
    for scenario in drawn(cell):
        assert scenario == msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)


@pytest.mark.parametrize("device", ["cuda:1", "", '\u2028 "quoted"'])
def test_a_gate_scenario_survives_json(device: str) -> None:
    scenario = GateScenario(device)

    assert scenario == msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario)


def test_every_mode_of_every_algorithm_has_a_convention_and_no_convention_is_without_one() -> None:
    reached = {(algorithm in DFLASH_FAMILY, mode) for algorithm, modes in MODES.items() for mode in modes}

    assert set(CONVENTION) == reached


def test_every_mode_of_every_algorithm_is_in_a_cell() -> None:
    wanted = {(algorithm, mode) for algorithm, modes in MODES.items() for mode in modes}
    drawn = {(algorithm, cell.mode) for cell in CELLS for algorithm in cell.algorithms}

    assert wanted == drawn


def test_cells_are_different_code_paths() -> None:
    assert len(CELLS) == len({cell[1:] + cell.algorithms[:1] for cell in CELLS})


def test_a_release_without_an_algorithm_has_no_cell_of_it() -> None:
    drawn = {algorithm for cell in cells(("EAGLE", "NGRAM")) for algorithm in cell.algorithms}

    assert drawn == {"NONE", "EAGLE", "NGRAM"}


@pytest.mark.parametrize("cell", cells(("EAGLE", "DFLASH")), ids=str)
@settings(SAME, max_examples=5)
@given(data=st.data())
def test_a_release_that_has_host_lengths_draws_no_scenario_without(cell: Cell, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(cell, ("EAGLE", "DFLASH")), label="scenario")

    assert scenario.host_view == "published"


def requests(found: Iterable[MetadataScenario]) -> Iterator[tuple[MetadataScenario, Request]]:
    """Every request of every round, with its scenario."""
    return ((scenario, request) for scenario in found for batch in scenario.rounds for request in batch)


def at_a_page_end(scenario: MetadataScenario, length: int) -> bool:
    """Whether `length` fills a page, or is one off."""
    return length % scenario.pool.page_size in (0, 1, scenario.pool.page_size - 1)


DFLASH_VERIFY = Cell(("DFLASH",), "target_verify", "eager", "mha")
DFLASH_REPLAY = Cell(("DFLASH",), "target_verify", "graph", "mha")


@pytest.mark.parametrize("page_size", [64, 128])
def test_a_quarter_of_all_lengths_lies_at_a_page_end(page_size: int) -> None:
    """Were prefixes drawn evenly, it would be a tenth with pages of 64, and a twentieth with pages of 128."""
    lengths = [
        at_a_page_end(scenario, request.prefix) or at_a_page_end(scenario, request.prefix + scenario.draft_tokens)
        for scenario, request in requests(drawn(DFLASH_VERIFY, 200))
        if scenario.pool.page_size == page_size
    ]

    assert len(lengths) >= 100
    assert sum(lengths) / len(lengths) >= 0.25


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("block", [False, True], ids=["prefix", "prefix and block"])
def test_every_side_of_a_page_end_is_drawn(block: bool, offset: int) -> None:
    page_ends = {
        (scenario.pool.page_size, scenario.draft_tokens, request.prefix)
        for scenario, request in requests(drawn(DFLASH_VERIFY, 200))
        if scenario.pool.page_size > 1
        if (request.prefix + block * scenario.draft_tokens - offset) % scenario.pool.page_size == 0
    }

    assert len(page_ends) >= 5


def test_the_context_end_is_drawn() -> None:
    full = {
        (scenario.pool, scenario.draft_tokens)
        for scenario, request in requests(drawn(DFLASH_VERIFY, 200))
        if request.prefix == scenario.pool.context_length
    }

    assert len(full) >= 5


@pytest.mark.parametrize("cell", [DFLASH_VERIFY, DFLASH_REPLAY], ids=str)
def test_every_choice_of_an_axis_is_drawn(cell: Cell) -> None:
    found = drawn(cell, 200)

    assert {1, 16, 64, 128} == {scenario.pool.page_size for scenario in found}
    assert {1, 3} == {scenario.pool.page_stride for scenario in found}
    assert {0, 1, 2} == {scenario.pool.shared_pages for scenario in found}
    assert {"int32", "int64"} == {scenario.host_dtype for scenario in found}
    assert {"published", "bound"} == {scenario.host_view for scenario in found}
    assert {False, True} == {scenario.lagging for scenario in found}
    assert {1, 4, 8, 16} <= {scenario.draft_tokens for scenario in found}
    assert {1, 2, 3, 4} == {len(scenario.rounds) for scenario in found}
    assert {1, 2} <= {len(batch) for scenario in found for batch in scenario.rounds}


def test_every_step_that_gets_metadata_is_drawn() -> None:
    """A draft decode of blocks up to 5 has metadata for three steps."""
    found = drawn(Cell(("EAGLE",), "draft_decode", "eager", "mha"), 150)

    assert {(3, 0), (4, 0), (4, 1), (5, 0), (5, 1), (5, 2)} == {(one.draft_tokens, one.step) for one in found}


def test_windows_of_a_page_and_of_more_than_the_context_are_drawn() -> None:
    found = drawn(Cell(("EAGLE",), "target_verify", "graph", "swa"), 100)

    assert {1, 100} <= {scenario.window for scenario in found}
    assert any(scenario.window == scenario.pool.page_size for scenario in found)
    assert any(scenario.window > scenario.pool.context_length for scenario in found)


def test_a_graph_has_idle_ranks_and_full_buckets_and_padded_ones() -> None:
    padding = {
        (bool(batch), scenario.bucket(len(batch)) > len(batch))
        for scenario in drawn(DFLASH_REPLAY, 200)
        for batch in scenario.rounds
    }

    assert padding == {(False, True), (True, True), (True, False)}


@pytest.mark.parametrize(
    ("page_size", "context", "block", "boundaries"),
    [
        (128, 256, 16, {0, 1, 111, 112, 113, 127, 128, 129, 239, 240, 241, 255, 256}),
        (64, 256, 4, {59, 60, 61, 63, 64, 65, 127, 128, 129, 191, 192, 193, 252, 256}),
        (16, 1000, 16, {15, 16, 17, 31, 32, 33, 975, 976, 977, 991, 992, 993, 984, 1000}),
    ],
)
def test_boundary_prefixes_hold_both_sides_of_page_ends(
    page_size: int, context: int, block: int, boundaries: set[int]
) -> None:
    assert boundaries <= set(boundary_prefixes(page_size, context, block))


@pytest.mark.parametrize("page_size", [1, 16, 64, 128])
def test_boundary_prefixes_are_prefixes(page_size: int) -> None:
    found = boundary_prefixes(page_size, 256, 32)

    assert 0 <= min(found) <= max(found) <= 256


@pytest.fixture(scope="module")
def swept() -> list[MetadataScenario]:
    return list(sweep())


def test_the_sweep_repeats_nothing(swept: list[MetadataScenario]) -> None:
    assert len(swept) == len(set(swept))


def test_every_scenario_of_the_sweep_can_be(swept: list[MetadataScenario]) -> None:
    assert {""} == {why_invalid(scenario) for scenario in swept}


def test_the_sweep_goes_through_every_configuration(swept: list[MetadataScenario]) -> None:
    """All page sizes, draft tokens 1 to 16, DFlash and EAGLE, both executors and both host dtypes: 512 in all."""
    found = {
        (one.pool.page_size, one.draft_tokens, one.algorithm, one.executor, one.host_dtype, len(one.rounds[0]))
        for one in swept
    }

    assert len(found) == 4 * 16 * 2 * 2 * 2 * 2
    assert {page for page, *_ in found} == {1, 16, 64, 128}
    assert {block for _, block, *_ in found} == set(range(1, 17))
    assert {algorithm for _, _, algorithm, *_ in found} == {"DFLASH", "EAGLE"}
    assert {executor for *_, executor, _, _ in found} == {"eager", "graph"}
    assert {dtype for *_, dtype, _ in found} == {"int32", "int64"}
    assert {size for *_, size in found} == {1, 2}


def test_the_sweep_has_every_ordered_pair_of_its_prefixes(swept: list[MetadataScenario]) -> None:
    prefixes = {0, 111, 112, 113, 127, 128, 129, 240, 255, 256}
    pairs = {
        (one.rounds[0][0].prefix, one.rounds[0][1].prefix)
        for one in swept
        if one.pool.page_size == 128 and one.draft_tokens == 16 and len(one.rounds[0]) == 2
    }

    assert pairs == {(a, b) for a in prefixes - {111} for b in prefixes - {111}}


def test_a_sweep_without_pairs_has_none() -> None:
    assert {1} == {len(one.rounds[0]) for one in sweep(range(1, 3), pairs=False)}


@pytest.mark.parametrize(
    ("page_size", "block", "prefixes"),
    [
        (128, 16, (0, 112, 113, 127, 128, 129, 240, 255, 256)),
        (64, 4, (0, 60, 61, 63, 64, 65, 252, 255, 256)),
        (16, 16, (0, 1, 15, 16, 17, 240, 255, 256)),
        (1, 1, (0, 1, 2, 3, 255, 256)),
    ],
)
def test_swept_prefixes_are_those_around_page_and_context_ends(
    page_size: int, block: int, prefixes: tuple[int, ...]
) -> None:
    assert prefixes == sweep_prefixes(page_size, block)


EXTEND = MetadataScenario("NONE", "extend", ((Request(5, new_tokens=3),),))
DECODE = MetadataScenario("NONE", "decode", ((Request(5),),))
DRAFT = MetadataScenario("EAGLE", "draft_decode", ((Request(5),),), draft_tokens=5, step=2)
DRAFT_EXTEND = MetadataScenario("EAGLE", "draft_extend", ((Request(5, new_tokens=3),),), draft_tokens=5)
GRAPH = replace(CONTRACT_EXAMPLE, executor="graph", buckets=(2,))


def single(request: Request, scenario: MetadataScenario = CONTRACT_EXAMPLE) -> MetadataScenario:
    """`scenario` with a single request."""
    return replace(scenario, rounds=((request,),))


def pair(first: Request, second: Request) -> MetadataScenario:
    """A verify of two requests."""
    return replace(CONTRACT_EXAMPLE, rounds=((first, second),))


ATTENDS = replace(CONTRACT_EXAMPLE, attention=Attention())
LATENT = replace(ATTENDS, target="mla")
WINDOW = replace(ATTENDS, target="swa", window=8)
IN_NZ = replace(LATENT, attention=Attention(nz=True))
LATENT_EXTEND = replace(EXTEND, target="mla", attention=Attention(), rounds=((Request(128, new_tokens=3),),))


@pytest.mark.parametrize(
    "scenario",
    [
        CONTRACT_EXAMPLE,
        EXTEND,
        DECODE,
        DRAFT,
        DRAFT_EXTEND,
        GRAPH,
        GateScenario(""),
        ATTENDS,
        LATENT,
        WINDOW,
        LATENT_EXTEND,
        replace(WINDOW, attention=Attention(sinks=True)),
        IN_NZ,
        replace(ATTENDS, attention=Attention(head_size=256, value_size=256)),
        replace(ATTENDS, attention=Attention(padding=1)),
        replace(EXTEND, attention=Attention(fia=True, padding=1)),
        replace(WINDOW, attention=Attention(fia=True, sinks=True, head_size=192)),
    ],
)
def test_what_the_rules_are_tried_on_can_be(scenario: Scenario) -> None:
    assert why_invalid(scenario) == ""


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (replace(DECODE, algorithm="EAGLE"), "EAGLE has no mode decode"),
        (replace(CONTRACT_EXAMPLE, algorithm="NGRAM", mode="draft_block"), "NGRAM has no mode draft_block"),
        (replace(CONTRACT_EXAMPLE, draft_tokens=0), "draft_tokens=0 is not in 1 to 32"),
        (replace(CONTRACT_EXAMPLE, draft_tokens=33), "draft_tokens=33 is not in 1 to 32"),
        (replace(CONTRACT_EXAMPLE, pool=Pool(page_size=0)), "page_size and context_length must be positive"),
        (
            single(Request(0), replace(EXTEND, pool=Pool(context_length=0))),
            "page_size and context_length must be positive",
        ),
        (replace(CONTRACT_EXAMPLE, pool=Pool(rows=0)), "pool.rows=0 is not in 1 to 64"),
        (replace(CONTRACT_EXAMPLE, pool=Pool(rows=65)), "pool.rows=65 is not in 1 to 64"),
        (
            replace(CONTRACT_EXAMPLE, pool=Pool(rows=64, context_length=20_000)),
            "the pool holds more than 1048576 positions",
        ),
        (replace(CONTRACT_EXAMPLE, pool=Pool(page_stride=0)), "page_stride=0 is not in 1 to 1048576"),
        (replace(CONTRACT_EXAMPLE, pool=Pool(page_offset=-1)), "page_offset=-1 is not in 0 to 1048576"),
        (replace(CONTRACT_EXAMPLE, pool=Pool(shared_pages=-1)), "shared_pages=-1 is not in 0 to 1048576"),
        (replace(DRAFT, step=-1), "step=-1 is not below draft_tokens"),
        (replace(DRAFT, step=5), "step=5 is not below draft_tokens"),
        (replace(CONTRACT_EXAMPLE, step=1), "only draft_decode has steps"),
        (replace(CONTRACT_EXAMPLE, window=8), "window goes with the target swa, and only with it"),
        (replace(CONTRACT_EXAMPLE, target="swa"), "window goes with the target swa, and only with it"),
        (replace(CONTRACT_EXAMPLE, target="gdn", mode="draft_block"), "the drafts of gdn have no mode draft_block"),
        (replace(CONTRACT_EXAMPLE, target="gdn", host_view="bound"), "linear attention has host lengths published"),
        (replace(ATTENDS, target="gdn"), "attention does not run with the target gdn yet"),
        (
            replace(CONTRACT_EXAMPLE, target="gdn", rounds=((Request(0),),)),
            "a verify of linear attention has a prefix, for the host too: a host length of 0 marks padding there",
        ),
        (
            replace(CONTRACT_EXAMPLE, target="gdn", rounds=((Request(3, host_lag=-3),),)),
            "a verify of linear attention has a prefix, for the host too: a host length of 0 marks padding there",
        ),
        (replace(GRAPH, buckets=()), "a graph needs captured buckets"),
        (replace(EXTEND, executor="graph", buckets=(1,)), "an extend is never captured"),
        (replace(GRAPH, buckets=(0, 2)), "a bucket is not in 1 to 64"),
        (replace(GRAPH, buckets=(2, 65)), "a bucket is not in 1 to 64"),
        (replace(CONTRACT_EXAMPLE, builds=0), "builds=0 is not in 1 to 4"),
        (replace(CONTRACT_EXAMPLE, builds=5), "builds=5 is not in 1 to 4"),
        (replace(CONTRACT_EXAMPLE, rounds=()), "it has no rounds"),
        (
            replace(CONTRACT_EXAMPLE, algorithm="EAGLE", host_view="bound"),
            "only DFlash publishes a reserved bound",
        ),
        (replace(DRAFT, draft_tokens=2, step=0), "a draft decode needs draft_tokens of 3 or more"),
        (replace(DRAFT, step=3), "that step gets no metadata"),
        (
            replace(single(Request(5, host_lag=1)), host_view="absent"),
            "only published host lengths can lag",
        ),
        (single(Request(5, new_tokens=1, host_lag=1), EXTEND), "that mode cannot lag"),
        (single(Request(5, host_lag=1), DECODE), "that mode cannot lag"),
        (single(Request(5, new_tokens=1, host_lag=1), DRAFT_EXTEND), "that mode cannot lag"),
        (
            replace(CONTRACT_EXAMPLE, rounds=((),)),
            "an eager batch without requests is never built (sglang skips it)",
        ),
        (replace(GRAPH, buckets=(1,)), "a batch of 2 fits no captured bucket"),
        (pair(Request(5), Request(130)), "two requests of one batch share a row"),
        (single(Request(5, row=0)), "row 0 is not in 1 to 4"),
        (single(Request(5, row=5)), "row 5 is not in 1 to 4"),
        (single(Request(-1)), "prefix -1 is not in 0 to the context length 1024"),
        (single(Request(1025)), "prefix 1025 is not in 0 to the context length 1024"),
        (single(Request(5, new_tokens=-1)), "new_tokens=-1 goes past the context"),
        (single(Request(1020, new_tokens=6), EXTEND), "new_tokens=6 goes past the context"),
        (single(Request(5), EXTEND), "extend needs new_tokens of 1 or more"),
        (single(Request(5), DRAFT_EXTEND), "draft_extend needs new_tokens of 1 or more"),
        (
            single(Request(5, new_tokens=33), DRAFT_EXTEND),
            "new_tokens=33 is more than the draft tokens that could be accepted",
        ),
        (single(Request(5, host_lag=-6)), "host_lag=-6 puts the host's prefix outside the context"),
        (single(Request(1020, host_lag=5)), "host_lag=5 puts the host's prefix outside the context"),
        (single(Request(5, host_lag=1), ATTENDS), "attention runs on exact lengths"),
        (replace(ATTENDS, host_view="bound"), "attention runs on exact lengths"),
        (replace(ATTENDS, attention=Attention(query_heads=3, kv_heads=2)), "heads must form groups, and be at most 16"),
        (replace(ATTENDS, attention=Attention(query_heads=32)), "heads must form groups, and be at most 16"),
        (replace(ATTENDS, attention=Attention(fill=float("nan"))), "the fill must be finite"),
        (replace(ATTENDS, attention=Attention(sinks=True)), "sinks go with the target swa"),
        (replace(WINDOW, window=1), "a window layer sees 2 positions or more: sglang's 0 is none"),
        (
            replace(ATTENDS, attention=Attention(head_size=72, value_size=72)),
            "the operators take no heads of that size",
        ),
        (replace(ATTENDS, attention=Attention(head_size=256)), "the operators take no heads of that size"),
        (
            replace(WINDOW, attention=Attention(fia=True, sinks=True, head_size=256, value_size=256)),
            "the operators take no heads of that size",
        ),
        (
            replace(WINDOW, attention=Attention(sinks=True, head_size=192)),
            "the operators take no heads of that size",
        ),
        (replace(LATENT, attention=Attention(head_size=64, value_size=64)), "MLA has heads of 128"),
        (replace(ATTENDS, attention=Attention(padding=-1)), "padding=-1 is not in 0 to 64"),
        (replace(GRAPH, attention=Attention(padding=1)), "such a batch is not padded"),
        (replace(EXTEND, attention=Attention(padding=1)), "such a batch is not padded"),
        (replace(LATENT, attention=Attention(query_heads=4, kv_heads=2)), "MLA has one KV head"),
        (replace(LATENT, pool=Pool(page_size=64)), "MLA runs with pages of (16, 128)"),
        (replace(ATTENDS, attention=Attention(nz=True)), "the layout NZ goes with the target mla"),
        (replace(IN_NZ, pool=Pool(page_size=16)), "caches in the layout NZ have pages of 128"),
        (replace(LATENT, draft_tokens=17), "MLA runs with at most 16 draft tokens"),
        (
            single(Request(5, new_tokens=3), LATENT_EXTEND),
            "an MLA extend starts at a page end: a cached prefix is whole pages",
        ),
    ],
)
def test_a_broken_rule_is_named(scenario: MetadataScenario, sentence: str) -> None:
    assert sentence == why_invalid(scenario)


@pytest.mark.parametrize("cell", [cell for cell in CELLS if attends(cell)], ids=str)
@settings(SAME, max_examples=15)
@given(data=st.data())
def test_a_drawn_scenario_whose_attention_runs_can_be(cell: Cell, data: st.DataObject) -> None:
    scenario = data.draw(attention_scenarios(cell, CAPABILITIES))

    assert why_invalid(scenario) == ""
    assert (scenario.mode, scenario.target, scenario.executor) == (cell.mode, cell.target, cell.executor)
    assert scenario.attention is not None


@pytest.mark.parametrize("capabilities", [(), ("fia-nz",)])
def test_caches_are_in_nz_only_where_the_release_can_have_them_so(capabilities: tuple[str, ...]) -> None:
    """Both layouts are drawn there, and a scenario in NZ is missing nothing; elsewhere it is missing `fia-nz`."""
    cell = next(cell for cell in CELLS if (cell.target, cell.mode) == ("mla", "decode"))
    drawn = set[bool]()

    @settings(SAME, max_examples=30)
    @given(attention_scenarios(cell, capabilities))
    def draw(scenario: MetadataScenario) -> None:
        assert scenario.attention is not None
        drawn.add(scenario.attention.nz)

    draw()
    assert drawn == ({False, True} if capabilities else {False})
    assert missing(IN_NZ, {"DFLASH", *capabilities}) == {"fia-nz"} - set(capabilities)


@pytest.mark.parametrize("capabilities", [(), ("head-sizes",)])
def test_heads_have_other_sizes_only_where_the_subject_takes_them(capabilities: tuple[str, ...]) -> None:
    cell = next(cell for cell in CELLS if (cell.target, cell.mode) == ("mha", "decode"))
    drawn = set[tuple[int, int]]()

    @settings(SAME, max_examples=60)
    @given(attention_scenarios(cell, capabilities))
    def draw(scenario: MetadataScenario) -> None:
        assert scenario.attention is not None
        drawn.add((scenario.attention.head_size, scenario.attention.value_size))

    draw()
    assert drawn == (set(SIZES) if capabilities else {(128, 128)})
    narrow = replace(ATTENDS, attention=Attention(head_size=192))
    assert missing(narrow, {"DFLASH", *capabilities}) == {"head-sizes"} - set(capabilities)


def test_a_rule_is_held_in_every_round() -> None:
    scenario = replace(CONTRACT_EXAMPLE, rounds=(*CONTRACT_EXAMPLE.rounds, (Request(5, row=5),)))

    assert why_invalid(scenario) == "row 5 is not in 1 to 4"
