"""Building metadata raises nothing, writes to none of its inputs, and gives the same answer twice."""

from collections.abc import Sequence

from msgspec.structs import replace

from harness.checks.check import Check, Judge
from harness.checks.finding import NOT_RUN, Outcome, failed
from harness.checks.rounds import builds, numbered_builds, what_is_read
from harness.checks.wording import finding, where
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.observation import Observation, Seen


def error_free(check: str, what: str, meaning: str) -> Judge:
    """A judge that fails with the first error of any build; `what` begins the message."""

    def judged(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
        assert isinstance(scenario, MetadataScenario)
        for index, seen in numbered_builds(scenario, observations[0]):
            if seen.error:
                kind = seen.error.split(":", 1)[0]
                message = f"{what} raised {seen.error} [{where(scenario, index)}]"
                return failed(finding(check, "error", kind, scenario, message, meaning))
        return failed()

    return judged


def _inputs_unchanged(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    outcome = NOT_RUN
    for index, seen in numbered_builds(scenario, observations[0]):
        if seen.error:
            continue
        outcome = failed()
        for changed in seen.changed:
            pairs = zip(changed.before, changed.after, strict=True)
            row = next(place for place, (before, after) in enumerate(pairs) if before != after)
            message = (
                f"{changed.name}[{row}]={changed.after[row]} after the call, but was {changed.before[row]} before it "
                f"({changed.dtype}) [{where(scenario, index, row)}]"
            )
            meaning = "whoever shares the tensor (scheduler, worker, next round) goes on with lengths that are wrong"
            return failed(
                finding("inputs-unchanged", changed.name, f"written-{changed.dtype}", scenario, message, meaning)
            )
    return outcome


def first_difference(before: Seen, after: Seen) -> tuple[str, str] | None:
    """The first metadata field in which two builds differ, and how, or None."""
    for name in sorted(before.fields.keys() | after.fields.keys()):
        left, right = before.fields.get(name), after.fields.get(name)
        if left != right:
            return name, f"{name} is {shown(right)}, but was {shown(left)}"
    return None


def shown(array: object) -> str:
    """An array in a message: its values, cut where they would fill the screen."""
    values = getattr(array, "values", None)
    if values is None:
        return "absent"
    text = str(values.tolist())
    return text if len(text) <= 120 else f"{text[:120]}… of shape {list(values.shape)}"


def _idempotent(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, MetadataScenario)
    (twice,) = _twice(scenario)
    seen = builds(twice, observations[1])
    outcome = NOT_RUN
    for index, batch in enumerate(scenario.rounds):
        first, second = (what_is_read(scenario, batch, one) for one in seen[2 * index : 2 * index + 2])
        if first.error or second.error:
            continue
        outcome = failed()
        if difference := first_difference(first, second):
            words = difference[1]
            message = f"on the second build of the same batch {words} [{where(scenario, index)}]"
            meaning = "a batch whose metadata is planned twice (plan stream, re-plan) gets other lengths"
            return failed(finding("idempotent", "metadata", "second-build-differs", scenario, message, meaning))
    return outcome


def _metadata(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario)


def _metadata_alone(scenario: Scenario) -> bool:
    """Where attention runs as well, an error is that of `attention-runs`."""
    return isinstance(scenario, MetadataScenario) and scenario.attention is None


def _twice(scenario: MetadataScenario) -> tuple[MetadataScenario, ...]:
    return (replace(scenario, builds=2),)


CHECKS = (
    Check(
        "builds",
        "metadata",
        "Building metadata for a legal batch raises nothing.",
        _metadata_alone,
        error_free("builds", "the backend", "the server stops at this batch"),
    ),
    Check(
        "inputs-unchanged",
        "metadata",
        "Building metadata writes to none of its input tensors, whatever their dtype.",
        _metadata,
        _inputs_unchanged,
    ),
    Check(
        "idempotent",
        "metadata",
        "Building metadata twice for the same batch gives the same answer.",
        _metadata,
        _idempotent,
        _twice,
    ),
)
