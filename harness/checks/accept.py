"""The accept rule: a verify emits what the target would have emitted without drafts, no more and no less."""

from collections.abc import Sequence
from typing import TypeVar

from harness.checks.check import Check, MissingField
from harness.checks.finding import Finding, Outcome, failed
from harness.reference.accept import Emission, greedy
from harness.scenario import Scenario, VerifyRequest, VerifyScenario
from harness.scenario.observation import Emitted, Observation

Value = TypeVar("Value", int, Emission)

GREEDY = "accept-greedy"
TOO_MANY = "tokens are emitted that the target did not choose: acceptance looks good, and the output is another"
TOO_FEW = "drafted tokens that the target agrees with are thrown away: speculation gains less, or nothing"
OTHER = "the output is not that of the target without speculation"


def _accept_greedy(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, VerifyScenario)
    if found := raised(GREEDY, scenario, observations[0]):
        return failed(found)
    for number, (request, seen) in enumerate(zip(scenario.requests, accepted(scenario, observations[0]), strict=True)):
        if not request.sampled:
            for emitted in seen:
                if found := _wrong(scenario, number, greedy(request), emitted):
                    return failed(found)
    return failed()


def _wrong(scenario: VerifyScenario, number: int, right: frozenset[Emission], emitted: Emitted) -> Finding | None:
    """What is wrong with `emitted`; where the target ties, any of its choices is right, if all of it goes together."""
    lengths = {len(one) for one in right}
    length = emitted.accept_len
    if length not in lengths:
        relation, meaning = ("too-many", TOO_MANY) if length > max(lengths) else ("too-few", TOO_FEW)
        return _differs(GREEDY, scenario, number, "accept_lens", (length, lengths), relation, meaning)
    if emitted.tokens not in right:
        ways = {one for one in right if len(one) == length}
        return _differs(GREEDY, scenario, number, "tokens", (emitted.tokens, ways), "wrong-token", OTHER)
    return bonus_differs(GREEDY, scenario, number, emitted)


def bonus_differs(check: str, scenario: VerifyScenario, number: int, emitted: Emitted) -> Finding | None:
    """The finding of a bonus that is not the last token that is emitted."""
    if emitted.bonus == emitted.tokens[-1]:
        return None
    meaning = "the next round verifies another token than the one that was emitted"
    return _differs(check, scenario, number, "bonus", (emitted.bonus, {emitted.tokens[-1]}), "wrong-bonus", meaning)


def accepted(scenario: VerifyScenario, observation: Observation) -> tuple[tuple[Emitted, ...], ...]:
    """What was emitted, by request; MissingField where nothing was reported for one of them."""
    if len(observation.accepted) != len(scenario.requests) or not all(observation.accepted):
        raise MissingField(f"the subject reported no emitted tokens for some of {len(scenario.requests)} requests")
    return observation.accepted


def raised(check: str, scenario: VerifyScenario, observation: Observation) -> Finding | None:
    """The finding of a verify that raised."""
    error = next((seen.error for seen in observation.seen if seen.error), "")
    if not error:
        return None
    message = f"the verify raises {error} [{where(scenario)}]"
    return finding(check, "error", scenario, error.split(":")[0], message, "the server stops at this verify")


def _differs(
    check: str,
    scenario: VerifyScenario,
    number: int,
    field: str,
    values: tuple[Value, set[Value]],
    relation: str,
    meaning: str,
) -> Finding:
    """A finding of a field whose value for request `number` is the first of `values`, and should be one of the rest."""
    value, right = values
    ways = " or ".join(_shown(one) for one in sorted(right))
    message = f"{field}[{number}]={_shown(value)}, but should be {ways} [{where(scenario)}]"
    return finding(check, field, scenario, relation, message, meaning)


def _shown(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)


def where(scenario: VerifyScenario) -> str:
    """The scenario in brackets."""
    kind = "sampled" if scenario.sampled else "greedy"
    grammar = ["grammar"] if any(request.allowed for request in scenario.requests) else []
    chances = [one for request in scenario.requests if request.sampled for one in chosen(request)]
    parts = [scenario.path, scenario.algorithm, kind, scenario.shape, *grammar, f"block={scenario.block}", *chances]
    return ", ".join(dict.fromkeys(parts))


def chosen(request: VerifyRequest) -> list[str]:
    """The sampling parameters of a request that are not the default."""
    filters = [f"top_k={request.top_k}"] if request.top_k else []
    filters += [f"top_p={request.top_p}"] if request.top_p < 1 else []
    return [f"temperature={request.temperature}", *filters]


def finding(check: str, field: str, scenario: VerifyScenario, relation: str, message: str, meaning: str) -> Finding:
    """A finding; its path stands where others have the executor, and the shape of its drafts where they have a mode."""
    fingerprint = ":".join([check, field, scenario.algorithm, scenario.path, scenario.shape, relation])
    return Finding(check, fingerprint, scenario.algorithm, scenario.path, scenario.shape, message, meaning, scenario)


CHECKS = (
    Check(
        GREEDY,
        "accept",
        "A greedy verify accepts drafted tokens as long as each is what the target says, and emits its next token.",
        lambda scenario: (
            isinstance(scenario, VerifyScenario) and not all(request.sampled for request in scenario.requests)
        ),
        _accept_greedy,
    ),
)
