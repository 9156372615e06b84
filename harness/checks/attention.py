"""Where attention runs: what it reads, what comes out, and that what nobody has written does not matter."""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from harness.checks.check import Check, MissingField
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.checks.inputs import error_free
from harness.checks.noise import bound
from harness.checks.rounds import builds, each_round, numbered_builds
from harness.checks.wording import finding, where
from harness.reference.attention import outputs
from harness.reference.metadata import rows
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.metadata import Target
from harness.scenario.observation import Observation, Seen

#: Another finite content of slots that nobody has written.
OTHER_FILL = -5.0


def floor(target: Target, noise: str = "emulated/float32") -> str:
    """The floor that outputs of a subject with `noise` are held to: MLA sums over wider heads."""
    return f"{noise}/mla" if target == "mla" else noise


def _accesses(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """The sanitizer's word on every access of every round, those before a fault included."""
    assert isinstance(scenario, MetadataScenario)
    outcome = NOT_RUN
    for index, seen in numbered_builds(scenario, observations[0]):
        if not seen.error:
            outcome = failed()
        if seen.accesses:
            first = seen.accesses[0]
            message = f"{first.sentence} [{where(scenario, index)}]"
            return failed(finding("kv-access", "slots", first.kind, scenario, message, first.consequence))
    return outcome


def _output(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    actual, expected = _reported(seen), outputs(scenario, batch)
    if actual.shape != expected.shape:
        raise MissingField(f"an output of shape {actual.shape} was reported, and {expected.shape} asked for")
    by_head = np.abs(actual - expected).max(axis=2)
    errors = by_head.max(axis=1)
    limit = bound(floor(scenario.target))
    wrong = np.flatnonzero(~(errors <= limit))
    if not len(wrong):
        return None
    request, query = _row(scenario, batch, int(wrong[0]))
    place = f"request {request}, query {query}{_layer(scenario, by_head[wrong[0]])}"
    message = (
        f"output of {place} is off by {errors[wrong[0]]:.3g}, but should be within "
        f"{limit:.3g} of float64 ({len(wrong)} of {len(errors)} rows) [{where(scenario, index, request)}]"
    )
    meaning = "the model computes with attention that is not the one it was trained for: outputs and acceptance suffer"
    return finding("attention-output", "output", "beyond-noise", scenario, message, meaning)


def _layer(scenario: MetadataScenario, errors: np.ndarray) -> str:
    """Which layer a row is most wrong in, where there are two: their heads lie side by side."""
    if scenario.target != "swa":
        return ""
    full, window = np.split(errors, 2)
    return " of the full layer" if np.isnan(full).any() or full.max() > window.max() else " of the window layer"


def _reported(seen: Seen) -> np.ndarray:
    if seen.output is None:
        raise MissingField("the subject reported no output")
    return seen.output.values


def _row(scenario: MetadataScenario, batch: tuple[Request, ...], row: int) -> tuple[int, int]:
    """Which request an output row belongs to, and which of its queries it is."""
    start = 0
    for request, right in enumerate(rows(scenario, batch)):
        if row < right.query_end:
            return request, row - start
        start = right.query_end
    raise MissingField(f"output row {row} belongs to no request")


def _otherwise_filled(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    assert scenario.attention is not None
    return (replace(scenario, attention=replace(scenario.attention, fill=OTHER_FILL)),)


def _fill_does_not_matter(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    (filled,) = _otherwise_filled(scenario)
    pairs = zip(numbered_builds(scenario, observations[0]), builds(filled, observations[1]), strict=True)
    outcome = NOT_RUN
    for (index, one), other in pairs:
        if one.error or other.error:
            continue
        outcome = failed()
        differs = np.flatnonzero((_reported(one) != _reported(other)).any(axis=(1, 2)))
        if len(differs):
            request, query = _row(scenario, scenario.rounds[index], int(differs[0]))
            message = f"output of request {request}, query {query} changes with what never-written slots hold"
            message += f" [{where(scenario, index, request)}]"
            meaning = "attention reads KV slots that nobody has written: acceptance falls, and no error says why"
            return failed(finding("poison-invariance", "output", "fill-matters", scenario, message, meaning))
    return outcome


def _attends(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and scenario.attention is not None


CHECKS = (
    Check(
        "kv-access",
        "kv-bounds",
        "Every KV slot that is read was written for its request at that position; writes go to slots of their own.",
        _attends,
        _accesses,
    ),
    Check(
        "poison-invariance",
        "kv-bounds",
        "What never-written KV slots hold changes no output, not by one bit.",
        _attends,
        _fill_does_not_matter,
        _otherwise_filled,
    ),
    Check(
        "attention-runs",
        "outputs",
        "The operators take what the backend tells them, and nothing is raised.",
        _attends,
        error_free(
            "attention-runs",
            "attention",
            "the server stops at this batch; after error 507015 its process has lost the device",
        ),
    ),
    Check(
        "attention-output",
        "outputs",
        "The output of every query row lies within the measured noise of dense attention in float64.",
        _attends,
        each_round(_output),
    ),
)
