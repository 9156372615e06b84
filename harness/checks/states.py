"""States of linear attention: whose state a request reads and writes, with which query rows, and a verify's steps."""

from itertools import pairwise

from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.rounds import each_round, field
from harness.checks.wording import finding, where
from harness.reference.states import states
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.metadata import PADDING_STATE
from harness.scenario.observation import Seen

#: The number that the kernels pass over, beside the slot that belongs to nobody (`PAD_SLOT_ID`).
PASSED_OVER = -1
FOREIGN = "a linear layer goes on from another request's state, and writes over it: both outputs are wrong from here on"
ROWS = "query rows are attributed to the wrong request: its state takes in another request's tokens"
STEPS = (
    "the accepted state is taken from another place than the verify wrote it to: the request goes on from a wrong one"
)


def _slots(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    name = "mamba_cache_indices"
    actual = field(seen, name, scenario.bucket(len(batch))).tolist()
    for row, (got, right) in enumerate(zip(actual, states(scenario, batch), strict=False)):
        if got != right.slot:
            message = f"{name}[{row}]={got}, but should be {right.slot} [{where(scenario, index, row)}]"
            return finding("state-slots", name, "another-slot", scenario, message, FOREIGN)
    for row, got in enumerate(actual[len(batch) :], start=len(batch)):
        if got not in (PADDING_STATE, PASSED_OVER):
            message = f"{name}[{row}]={got}, but a padded row should have slot {PADDING_STATE} or {PASSED_OVER}"
            message += f" [{where(scenario, index)}]"
            return finding("state-slots", name, "live-slot", scenario, message, FOREIGN)
    return None


def _queries(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """Padded rows may have queries of their own or none, and all rows end within what was captured."""
    name = "query_start_loc"
    actual = field(seen, name).tolist()
    right = [0, *(state.queries[1] for state in states(scenario, batch))]
    bucket = scenario.bucket(len(batch))
    most = bucket * scenario.draft_tokens if scenario.executor == "graph" else right[-1]
    ordered = len(actual) == bucket + 1 and actual[-1] <= most and all(a <= b for a, b in pairwise(actual))
    if ordered and actual[: len(right)] == right:
        return None
    message = f"{name}={actual}, but should begin {right}, not fall, end by {most} and have {bucket + 1} entries"
    message += f" [{where(scenario, index)}]"
    return finding("state-queries", name, "cumulative-wrong", scenario, message, ROWS)


def _steps(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    name = "ssm_state_indices"
    actual = field(seen, name, len(batch) * scenario.draft_tokens).reshape(-1).tolist()
    right = [step for state in states(scenario, batch) for step in state.steps]
    for place, (got, wanted) in enumerate(zip(actual, right, strict=False)):
        if got != wanted:
            message = f"{name}[{place}]={got}, but should be {wanted} "
            message += f"[{where(scenario, index, place // scenario.draft_tokens)}]"
            return finding("state-steps", name, "another-step", scenario, message, STEPS)
    return None


def _linear(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and scenario.target == "gdn"


def _verifies(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and scenario.target == "gdn" and scenario.mode == "target_verify"


CHECKS = (
    Check(
        "state-slots",
        "metadata",
        "Linear layers read and write the state of each request, and padded rows that of nobody.",
        _linear,
        each_round(_slots),
    ),
    Check(
        "state-queries",
        "metadata",
        "Linear layers are given each request's own query rows, from 0 on.",
        _linear,
        each_round(_queries),
    ),
    Check(
        "state-steps",
        "metadata",
        "A verify keeps the state after each draft token where the accepted one is looked for.",
        _verifies,
        each_round(_steps),
    ),
)
