"""The steps of a multi-step draft, each of them a scenario, and which cache locations belong to each.

The worker publishes one batch for the whole draft, with as many cache locations a request as the draft has steps, the
last included, which only samples. A graph holds all steps; in eager the backend is asked for one after the other.
Sources: `draft_forward` and `per_step_draft_out_cache_loc`, `eagle_draft_cuda_graph_runner.py` (0.5.15 to 0.5.23).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from harness.scenario import MetadataScenario, Request


def steps_of(scenario: MetadataScenario) -> int:
    """How many steps a multi-step draft has; every other mode has one."""
    return scenario.draft_tokens - 1 if scenario.mode == "draft_decode" else 1


def run_together(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    """The steps whose attention is run to observe `scenario`: itself, or all that attend where a graph holds them.

    Where there are several, that of `scenario` is at the index `scenario.step`.
    """
    if scenario.mode != "draft_decode" or scenario.executor == "eager":
        return (scenario,)
    return tuple(replace(scenario, step=step) for step in range(steps_of(scenario) - 1))


def new_positions(scenario: MetadataScenario, batch: tuple[Request, ...]) -> tuple[list[int], list[int]]:
    """First logical position that each request writes in the step, and how many it writes."""
    starts = [request.prefix for request in batch]
    if scenario.mode == "extend":
        return starts, [request.new_tokens for request in batch]
    if scenario.mode == "decode":
        return starts, [1] * len(batch)
    if scenario.mode == "draft_decode":
        return [start + scenario.step for start in starts], [1] * len(batch)
    return starts, [scenario.draft_tokens] * len(batch)


def padded_rows(scenario: MetadataScenario, batch: tuple[Request, ...]) -> int:
    """Rows of queries, keys and values beyond those of `batch`, which pad it."""
    padding = scenario.attention.padding if scenario.attention is not None else 0
    _, counts = new_positions(scenario, batch)
    return padding if scenario.mode == "extend" else padding * (counts[0] if counts else 0)


def published_positions(scenario: MetadataScenario, batch: tuple[Request, ...]) -> tuple[list[int], list[int]]:
    """First logical position and number of the cache locations that the worker publishes: of all steps of a draft."""
    if scenario.mode == "draft_decode":
        return [request.prefix for request in batch], [steps_of(scenario)] * len(batch)
    return new_positions(scenario, batch)


@contextmanager
def locations_of_step(scenario: MetadataScenario, forward_batch: Any) -> Iterator[None]:
    """Have `forward_batch` show the cache locations of the step alone, as the worker does around each forward."""
    from sglang.srt.speculative.eagle_utils import per_step_draft_out_cache_loc

    published = forward_batch.out_cache_loc
    if scenario.mode == "draft_decode":
        size = forward_batch.batch_size
        of_steps = per_step_draft_out_cache_loc(published, size, topk=1, num_steps=steps_of(scenario))
        forward_batch.out_cache_loc = of_steps[scenario.step]
    try:
        yield
    finally:
        forward_batch.out_cache_loc = published
