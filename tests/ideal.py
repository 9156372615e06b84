"""An ideal subject: observations made from the reference alone, for controls and planted faults."""

from collections.abc import Sequence

from msgspec.structs import replace

from harness.checks.lengths import query_field
from harness.reference.metadata import prefix_pages, rows
from harness.scenario import GateScenario, MetadataScenario, PageMap, Request, Scenario
from harness.scenario.convention import device_length
from harness.scenario.observation import Array, Observation, Seen


def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
    """What a subject without any fault reports."""
    return [observation(scenario) for scenario in scenarios]


def observation(scenario: Scenario) -> Observation:
    """The observation of one scenario; a gate accepts cuda, cuda:N and npu."""
    if isinstance(scenario, GateScenario):
        accepted = scenario.device.startswith("cuda") or scenario.device == "npu"
        return Observation(verdict="accepted" if accepted else "only cuda and npu are supported")
    seen = [round_seen(scenario, batch) for batch in scenario.rounds for _ in range(scenario.builds)]
    return Observation(tuple(seen))


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
    return Seen(fields=fields)


def matrix(table: list[list[int]], width: int) -> Array:
    """A table that keeps its two dimensions when it has no rows."""
    return Array.of(table) if table else Array((0, width), b"")


def with_field(observed: Observation, name: str, values: object, build: int = 0) -> Observation:
    """`observed` with one field of one build replaced: how faults are planted."""
    seen = list(observed.seen)
    seen[build] = replace(seen[build], fields={**seen[build].fields, name: Array.of(values)})  # type: ignore[arg-type]
    return replace(observed, seen=tuple(seen))
