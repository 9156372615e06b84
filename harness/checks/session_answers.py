"""What the visitors of a session get: the target's own tokens, and honest numbers of acceptance."""

from collections.abc import Sequence

from harness.checks.check import Check
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.checks.noise import bound
from harness.checks.session_server import is_session, seen_of
from harness.checks.wording import session_finding
from harness.reference.session import answer, answer_length, tokens_of_extends
from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import Answer, Observation

#: The noise of logits: of two that are nearer to one another, either may be the greatest.
FLOOR = "emulated/float32/logits"


def first_difference(scenario: SessionScenario, visit: int, got: Answer) -> int | None:
    """The place of the first token that is not the target's own, or None.

    After a near-tie, where another token is as good, what comes is the answer to another text.
    """
    right = answer(scenario, visit)
    for place, (token, expected) in enumerate(zip(got.tokens, right.tokens, strict=False)):
        if token != expected:
            return place if right.gaps[place] > 2 * bound(FLOOR) else None
    return None


def _lossless(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """Speculation, the batch, pages, prefixes, overlap and graphs may not change a greedy answer."""
    assert isinstance(scenario, SessionScenario)
    outcome = NOT_RUN
    for visit, got in enumerate(seen_of(observations[0]).answers):
        if scenario.visits[visit].temperature or not got.tokens:
            continue
        outcome = failed()
        place = first_difference(scenario, visit, got)
        if place is not None:
            right = answer(scenario, visit)
            message = (
                f"token {place} of visit {visit} is {got.tokens[place]}, but the target alone generates "
                f"{right.tokens[place]} (its logit is {right.gaps[place]:.3g} above the next)"
            )
            meaning = "with speculation the model answers something else than without"
            return failed(session_finding("session-lossless", "tokens", "differ", scenario, message, meaning, visit))
    return outcome


def _complete(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """Who was not aborted gets as many tokens as it asked for, or as the context has room for."""
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if seen.error:
        return NOT_RUN
    for visit, got in enumerate(seen.answers):
        if scenario.visits[visit].aborted:
            continue
        expected = answer_length(scenario, visit)
        if not got.finished:
            words = f"visit {visit} is never finished: it has {len(got.tokens)} of {expected} tokens"
            return failed(_incomplete(scenario, visit, words, "unfinished"))
        if len(got.tokens) != expected:
            words = f"visit {visit} gets {len(got.tokens)} tokens, but should get {expected} ({got.finished})"
            return failed(_incomplete(scenario, visit, words, "wrong-count"))
    return failed()


def _incomplete(scenario: SessionScenario, visit: int, words: str, relation: str) -> Finding:
    meaning = "a request hangs, or its answer is cut short"
    return session_finding("session-complete", "answers", relation, scenario, words, meaning, visit)


def _acceptance(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """Identities that hold whatever is accepted."""
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if seen.error or not seen.forwards:
        return NOT_RUN  # a verify may be counted already, and its tokens not; or nothing was watched
    block = max((forward.block for forward in seen.forwards), default=0)
    outcome = NOT_RUN
    for visit, got in enumerate(seen.answers):
        if not got.verifies:
            continue
        outcome = failed()
        for words, relation in _broken(got, block, tokens_of_extends(scenario, seen.forwards, visit)):
            message = f"visit {visit} {words}"
            meaning = "the acceptance that the server reports is not the one it had"
            return failed(session_finding("session-acceptance", "counts", relation, scenario, message, meaning, visit))
    return outcome


def _broken(got: Answer, block: int, of_extends: int) -> list[tuple[str, str]]:
    """The identities that do not hold for an answer, of whose tokens so many came from no verify."""
    steps = sum(got.accepted)
    made = len(got.tokens) + got.overshoot - of_extends
    broken = []
    if len(got.accepted) > block:
        broken.append((f"accepts {len(got.accepted) - 1} of {block - 1} draft tokens", "rate-above-one"))
    if steps != got.verifies:
        broken.append((f"counts {steps} steps by accepted tokens, and {got.verifies} verifies", "steps"))
    if got.committed != made and not got.retractions:
        broken.append((f"counts {got.committed} tokens of its verifies, and they made {made}", "tokens"))
    return broken


CHECKS = (
    Check(
        "session-lossless",
        "sessions",
        "A greedy answer is the target's own, token by token, whatever the draft, the batch and the server options.",
        is_session,
        _lossless,
    ),
    Check(
        "session-complete",
        "sessions",
        "Every request ends, with as many tokens as it asked for unless it was aborted.",
        is_session,
        _complete,
    ),
    Check(
        "session-acceptance",
        "sessions",
        "Accepted draft tokens are 0 to D - 1 a verify, and with their bonus they are the tokens of the answer.",
        is_session,
        _acceptance,
    ),
)
