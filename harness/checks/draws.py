"""A sampled verify, done many times: what it emits has the target's distribution."""

from collections import Counter
from collections.abc import Callable, Sequence

from harness.checks.accept import OTHER, TOO_FEW, TOO_MANY, accepted, bonus_differs, finding, raised, where
from harness.checks.chance import FALSE_ALARM, least_likely
from harness.checks.check import Check, NothingToJudge
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.reference.accept import Ambiguous, Emission, greedy, sampled
from harness.scenario import Scenario, VerifyScenario
from harness.scenario.observation import Emitted, Observation

CHECK = "accept-sampled"
ALWAYS = "the request asked for temperature, top_k or top_p, and gets greedy decoding"


def _accept_sampled(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, VerifyScenario)
    if found := raised(CHECK, scenario, observations[0]):
        return failed(found)
    outcome = NOT_RUN
    for number, (request, seen) in enumerate(zip(scenario.requests, accepted(scenario, observations[0]), strict=True)):
        if request.sampled:
            try:
                right = sampled(request)
            except Ambiguous as error:
                raise NothingToJudge from error
            if found := _wrong(scenario, number, right, seen):
                return failed(found)
            outcome = failed()
    return outcome


def _wrong(
    scenario: VerifyScenario, number: int, right: dict[Emission, float], seen: Sequence[Emitted]
) -> Finding | None:
    """The plainest way in which the counts of one request are no chance."""
    for emitted in seen:
        if found := bonus_differs(CHECK, scenario, number, emitted):
            return found
        if emitted.tokens not in right:
            return _impossible(scenario, number, right, emitted)
    counts = Counter({emitted.tokens: emitted.count for emitted in seen})
    draws = counts.total()
    if not _is_chance(counts, right, draws):
        return _unlikely(scenario, number, right, counts)
    return None


def _is_chance(counts: Counter[Emission], right: dict[Emission, float], draws: int) -> bool:
    """Whether the counts of emissions, and of accept lengths, can be those of the right distribution."""
    own = [(counts[emission], probability) for emission, probability in right.items()]
    longest = max(map(len, right))
    lengths = [_count(counts, right, lambda one, n=n: len(one) >= n) for n in range(2, longest + 1)]  # type: ignore[misc]
    return least_likely([*own, *lengths], draws) >= FALSE_ALARM


def _count(
    counts: Counter[Emission], right: dict[Emission, float], which: Callable[[Emission], bool]
) -> tuple[int, float]:
    """How often emissions of a kind were seen, and how likely they are."""
    seen = sum(count for emission, count in counts.items() if which(emission))
    return seen, min(1.0, sum(probability for emission, probability in right.items() if which(emission)))


def _impossible(scenario: VerifyScenario, number: int, right: dict[Emission, float], emitted: Emitted) -> Finding:
    """An emission that no walk of the target makes: too long, too short, or with a token that is ruled out."""
    tokens = emitted.tokens
    longer = any(one[: len(tokens)] == tokens for one in right)
    shorter = any(tokens[: len(one)] == one for one in right)
    relation, meaning = ("too-few", TOO_FEW) if longer else ("too-many", TOO_MANY) if shorter else ("ruled-out", OTHER)
    message = (
        f"tokens[{number}]={list(tokens)} in {emitted.count} of {scenario.draws} draws, but should be in none "
        f"[{where(scenario)}]"
    )
    return finding(CHECK, "tokens", scenario, relation, message, meaning)


def _unlikely(
    scenario: VerifyScenario, number: int, right: dict[Emission, float], counts: Counter[Emission]
) -> Finding:
    """What is emitted too often or too rarely: always the greedy tokens, too many or too few of them, or others."""
    draws = counts.total()
    (most, count), *_ = counts.most_common()
    if count == draws and most in greedy(scenario.requests[number]):
        message = _of_draws(f"tokens[{number}]={list(most)}", count, draws, right[most])
        return finding(CHECK, "tokens", scenario, "always-the-greedy", f"{message} [{where(scenario)}]", ALWAYS)
    for length in range(2, max(map(len, right)) + 1):
        seen, likely = _count(counts, right, lambda one, n=length: len(one) >= n)  # type: ignore[misc]
        if least_likely([(seen, likely)], draws) < FALSE_ALARM:
            relation, meaning = ("too-many", TOO_MANY) if seen > draws * likely else ("too-few", TOO_FEW)
            message = _of_draws(f"accept_lens[{number}] is {length} or more", seen, draws, likely)
            return finding(CHECK, "accept_lens", scenario, relation, f"{message} [{where(scenario)}]", meaning)
    worst = min(right, key=lambda one: least_likely([(counts[one], right[one])], draws))
    message = _of_draws(f"tokens[{number}]={list(worst)}", counts[worst], draws, right[worst])
    return finding(CHECK, "tokens", scenario, "other-distribution", f"{message} [{where(scenario)}]", OTHER)


def _of_draws(what: str, count: int, draws: int, probability: float) -> str:
    return f"{what} in {count} of {draws} draws, but should be in {probability:.3%} of them"


CHECKS = (
    Check(
        CHECK,
        "accept",
        "What a sampled verify emits has the distribution of the target's filtered probabilities, token by token.",
        lambda scenario: isinstance(scenario, VerifyScenario) and scenario.sampled,
        _accept_sampled,
    ),
)
