"""An ideal subject: observations made from the reference alone, for controls and planted faults."""

import re
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from msgspec.structs import replace

from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Outcome, Verdict
from harness.checks.lengths import query_field
from harness.checks.start import TWO_RANKS
from harness.reference.accept import Ambiguous, greedy, sampled
from harness.reference.attention import outputs
from harness.reference.metadata import prefix_pages, rows
from harness.reference.states import states
from harness.scenario import (
    GateScenario,
    MetadataScenario,
    PageMap,
    Request,
    Scenario,
    SessionScenario,
    VerifyRequest,
    VerifyScenario,
)
from harness.scenario.convention import device_length
from harness.scenario.observation import Array, Emitted, Floats, Observation, Seen
from harness.scenario.session_strategies import Server, sessions
from harness.scenario.strategies import Cell, cells, scenarios
from harness.scenario.verify_strategies import VerifyCell, verifies
from tests.ideal_session import session_seen

Plant = Callable[[Observation], Observation]
Strategy = Callable[[Cell, Collection[str]], SearchStrategy[MetadataScenario]]

#: Everything that a release can have, and every cell that such a release has.
CAPABILITIES = (
    "EAGLE", "EAGLE3", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "DFLASH2", "absent-host", "dflash-grammar", "fia-nz",
    "head-sizes", "dp-padding",
)  # fmt: skip
CELLS = cells(CAPABILITIES)

#: A property draws the same examples every time.
SAME = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

#: docs/contract.md: prefixes 5 and 130, block 16, page 128; right is [21, 146].
CONTRACT_EXAMPLE = MetadataScenario(
    "DFLASH", "target_verify", ((Request(prefix=5), Request(prefix=130, row=2)),), draft_tokens=16
)


def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
    """What a subject without any fault reports."""
    return [observation(scenario) for scenario in scenarios]


_RANKS: tuple[tuple[str, int | str], ...] = tuple(TWO_RANKS.items())
#: What the starts of `harness.checks.start` must come to: tokens of a block and most requests, or the option refused.
_STARTED: dict[tuple[tuple[str, int | str], ...], tuple[int, int] | str] = {
    (): (8, 48),
    (("speculative_num_steps", 1), ("speculative_eagle_topk", 1), ("max_running_requests", 7)): (8, 7),
    (("speculative_num_steps", 2), ("speculative_eagle_topk", 2)): (8, 48),
    (("speculative_num_draft_tokens", 4),): (4, 48),
    (("speculative_dflash_block_size", 1),): (1, 48),
    (("speculative_dflash_block_size", 0),): "--speculative-dflash-block-size must be positive",
    (("speculative_dflash_block_size", 4), ("speculative_num_draft_tokens", 4)): (4, 48),
    (
        ("speculative_dflash_block_size", 4),
        ("speculative_num_draft_tokens", 8),
    ): "speculative_dflash_block_size differs",
    (("speculative_draft_window_size", 7),): "--speculative-draft-window-size is below the block",
    (("speculative_draft_window_size", 8),): (8, 48),
    (("speculative_dflash_block_size", 4), ("speculative_draft_window_size", 64)): (4, 48),
    (("attention_backend", "ascend"),): (8, 48),
    (("pp_size", 2),): "pp_size must be 1",
    _RANKS: "dp attention takes --enable-dp-lm-head",
    (*_RANKS, ("enable_dp_lm_head", 1)): (8, 48),
    (*_RANKS, ("enable_dp_lm_head", 1), ("attn_cp_size", 2)): "dp attention takes no context parallel",
}


def _started(scenario: GateScenario) -> Observation:
    started = (16, 48) if scenario.draft == 0 else _STARTED[scenario.options]
    if scenario.device == "npu":  # which takes the head of its own rank
        started = (8, 48)
    if isinstance(started, str):
        return Observation(verdict=started)
    names = ("speculative_num_draft_tokens", "max_running_requests", "speculative_num_steps", "speculative_eagle_topk")
    numbers = zip(names, (*started, 1, 1), strict=True)
    return Observation(verdict="accepted", settled=(*numbers, ("speculative_draft_attention_backend", "ascend")))


def observation(scenario: Scenario) -> Observation:
    """The observation of one scenario; a gate accepts cuda, cuda:N and npu."""
    if isinstance(scenario, GateScenario) and scenario.draft is not None:
        return _started(scenario)
    if isinstance(scenario, GateScenario):
        accepted = scenario.device.startswith("cuda") or scenario.device == "npu"
        return Observation(verdict="accepted" if accepted else "only cuda and npu are supported")
    if isinstance(scenario, VerifyScenario):
        return Observation(accepted=tuple(emitted(request, scenario.draws) for request in scenario.requests))
    if isinstance(scenario, SessionScenario):
        return Observation(session=session_seen(scenario))
    seen = [round_seen(scenario, batch) for batch in scenario.rounds for _ in range(scenario.builds)]
    return Observation(tuple(seen))


def emitted(request: VerifyRequest, draws: int) -> tuple[Emitted, ...]:
    """What a request emits: of a sampled one, each emission about as often as it is expected."""
    if not request.sampled:
        one = min(greedy(request))
        return (Emitted(len(one), one, one[-1], draws),)
    try:
        right = sampled(request)
    except Ambiguous:
        return (Emitted(1, (0,), 0, draws),)
    likely = sorted(right, key=right.__getitem__, reverse=True)
    counts = {one: int(right[one] * draws) for one in likely}
    for one in likely[: draws - sum(counts.values())]:
        counts[one] += 1
    return tuple(Emitted(len(one), one, one[-1], count) for one, count in counts.items() if count)


def round_seen(scenario: MetadataScenario, batch: tuple[Request, ...]) -> Seen:
    """The metadata of one round, with padded rows that hold nothing but the padding page."""
    live = rows(scenario, batch)
    padding = scenario.bucket(len(batch)) - len(batch)
    lengths = [row.kv_length for row in live] + [0] * padding
    ends = [row.query_end for row in live]
    width = max((len(row.pages) for row in live), default=0) + 1
    table = [row.pages + [0] * (width - len(row.pages)) for row in live] + [[0] * width] * padding
    fields = {
        "block_tables": matrix(table, width),
        query_field(scenario): Array.of(ends + [(ends or [0])[-1] + 1 + row for row in range(padding)]),
        "seq_lens": Array.of(lengths),
    }
    if scenario.executor == "graph":
        fields["host_lengths"] = Array.of(lengths)
    elif scenario.host_view != "absent":
        fields["seq_lens_cpu_int"] = Array.of(lengths)
        if scenario.mode not in ("extend", "decode"):
            fields["seq_lens"] = Array.of([device_length(scenario, request) for request in batch])
    if scenario.target == "swa":
        pages = PageMap(scenario)
        fields["block_tables_swa"] = matrix(
            [[pages.swa_page(page) if page else 0 for page in row] for row in table], width
        )
        if scenario.executor == "graph":
            visible = [(*row.visible, row.visible[1] - row.visible[0]) for row in live] + [(0, 0, 0)] * padding
            fields["swa_visible"] = matrix([list(row) for row in visible], 3)
    if scenario.target == "mla" and scenario.mode == "extend":
        fields["prefix_lens"] = Array.of([request.prefix for request in batch])
        fields["flatten_prefix_block_tables"] = Array.of(prefix_pages(scenario, batch))
    if scenario.target == "gdn":
        known = states(scenario, batch)
        fields["mamba_cache_indices"] = Array.of([state.slot for state in known] + [0] * padding)
        fields["query_start_loc"] = Array.of([0, *ends] + [(ends or [0])[-1]] * padding)
        if scenario.mode == "target_verify":
            fields["ssm_state_indices"] = Array.of(range(scenario.bucket(len(batch)) * scenario.draft_tokens))
    output = Floats.of(outputs(scenario, batch)) if scenario.attention is not None else None
    return Seen(fields=fields, output=output)


def matrix(table: list[list[int]], width: int) -> Array:
    """A table that keeps its two dimensions when it has no rows."""
    return Array.of(table) if table else Array((0, width), b"")


def with_field(observed: Observation, name: str, values: object, build: int = 0) -> Observation:
    """`observed` with one field of one build replaced: how faults are planted."""
    seen = list(observed.seen)
    seen[build] = replace(seen[build], fields={**seen[build].fields, name: Array.of(values)})  # type: ignore[arg-type]
    return replace(observed, seen=tuple(seen))


@cache
def drawn(cell: Cell, examples: int = 16, strategy: Strategy = scenarios) -> tuple[MetadataScenario, ...]:
    """Scenarios of `cell`, the same every time; `strategy` is that of the metadata or that of attention."""
    found: list[MetadataScenario] = []

    @settings(SAME, max_examples=examples, phases=(Phase.generate,))
    @given(strategy(cell, CAPABILITIES))
    def collect(scenario: MetadataScenario) -> None:
        found.append(scenario)

    collect()
    return tuple(found)


@cache
def drawn_verifies(cell: VerifyCell, examples: int = 16) -> tuple[VerifyScenario, ...]:
    """Verify scenarios of `cell`, the same every time."""
    found: list[VerifyScenario] = []

    @settings(SAME, max_examples=examples, phases=(Phase.generate,))
    @given(verifies(cell, CAPABILITIES))
    def collect(scenario: VerifyScenario) -> None:
        found.append(scenario)

    collect()
    return tuple(found)


@cache
def drawn_sessions(server: Server, examples: int = 10) -> tuple[SessionScenario, ...]:
    """Sessions on `server`, the same every time."""
    found: list[SessionScenario] = []

    @settings(SAME, max_examples=examples, phases=(Phase.generate,))
    @given(sessions(server))
    def collect(scenario: SessionScenario) -> None:
        found.append(scenario)

    collect()
    return tuple(found)


class Planted(NamedTuple):
    """A fault planted in what the ideal subject sees, and how `check` must report it.

    `plant` falsifies the observation of `scenario` itself, or with `place` that of one of the check's variants.
    `relation` ends the fingerprint, after the mode, and `message` is the finding's without the scenario in brackets.
    """

    name: str
    check: Check
    scenario: Scenario
    plant: Plant
    relation: str
    message: str
    place: int = 0

    def __str__(self) -> str:
        return f"{self.check.id}, {self.name}"

    @property
    def expected(self) -> tuple[str, str]:
        """What `reported` must give."""
        return self.relation, self.message

    def reported(self) -> tuple[str, str]:
        """Relation and message of the finding, or verdict and reason where there is none."""
        outcome = judge(self.check, self.scenario, self.plant, self.place)
        if outcome.verdict is not Verdict.FAIL:
            return outcome.verdict.value, outcome.reason
        (found,) = outcome.findings
        place = 3 if isinstance(self.scenario, GateScenario) else 5
        return found.fingerprint.split(":", place)[place], re.sub(r" \[[^\[\]]*\]$", "", found.message)


def untouched(observed: Observation) -> Observation:
    """No fault."""
    return observed


def says(name: str, values: object, build: int = 0) -> Plant:
    """The fault of reporting `values` as the field `name` of one build."""
    return lambda observed: with_field(observed, name, values, build)


def raises(error: str, build: int = 0) -> Plant:
    """The fault of raising `error` in place of one build."""

    def plant(observed: Observation) -> Observation:
        seen = list(observed.seen)
        seen[build] = Seen(error=error)
        return replace(observed, seen=tuple(seen))

    return plant


def judge(check: Check, scenario: Scenario, plant: Plant = untouched, place: int = 0) -> Outcome:
    """What `check` says of an ideal subject whose observation number `place` went through `plant`."""
    observed = observe(Trial.needed(check, scenario))
    observed[place] = plant(observed[place])
    return check.outcome(scenario, observed)
