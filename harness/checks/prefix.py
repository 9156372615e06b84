"""MLA extend over a cached prefix: the prefix lengths, and the flat list of the prefix pages."""

from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.rounds import each_round, field
from harness.checks.wording import finding, where
from harness.reference.metadata import prefix_pages
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Seen


def _prefix_tables(scenario: MetadataScenario, index: int, batch: tuple[Request, ...], seen: Seen) -> Finding | None:
    """Without any prefix the backend builds none of the two, and none is needed."""
    if not any(request.prefix for request in batch):
        return None
    meaning = "the extend gathers KV of another prefix: outputs are wrong from the first token"
    pairs = (
        ("prefix_lens", [request.prefix for request in batch]),
        ("flatten_prefix_block_tables", prefix_pages(scenario, batch)),
    )
    for name, expected in pairs:
        actual = field(seen, name).tolist()
        if actual != expected:
            message = f"{name}={actual}, but should be {expected} [{where(scenario, index)}]"
            return finding("mla-prefix", name, "prefix-wrong", scenario, message, meaning)
    return None


def _mla_extend(scenario: Scenario) -> bool:
    return isinstance(scenario, MetadataScenario) and scenario.target == "mla" and scenario.mode == "extend"


CHECKS = (
    Check(
        "mla-prefix",
        "metadata",
        "An MLA extend gathers exactly the pages of every committed prefix, request after request.",
        _mla_extend,
        each_round(_prefix_tables),
    ),
)
