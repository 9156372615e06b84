"""A session as a whole: the server starts and answers, its books balance, and it touches only what it may."""

import re
from collections.abc import Sequence

from harness.checks.check import Check, MissingField
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.checks.wording import session_finding
from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import BadAccess, Observation, SessionSeen

#: The runtime's number for an address out of range.
DEVICE_LOST = "507015"


def seen_of(observation: Observation) -> SessionSeen:
    """What was seen of the session; MissingField where nothing was."""
    if observation.session is None:
        raise MissingField("the subject reported no session")
    return observation.session


def is_session(scenario: Scenario) -> bool:
    """Whether a check of sessions can speak."""
    return isinstance(scenario, SessionScenario)


def _runs(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if not seen.error:
        return failed()
    if not seen.turns:
        message = f"the server does not start: {seen.error}"
        meaning = "the release cannot be used with these server arguments on an NPU"
        return failed(session_finding("session-runs", "start", _slug(seen.error), scenario, message, meaning))
    message = f"the server ends at turn {seen.turns}: {seen.error}"
    meaning = "every request that is running is lost, and the server with them"
    return failed(session_finding("session-runs", "end", _slug(seen.error), scenario, message, meaning))


def _slug(error: str) -> str:
    """An error without its numbers, so that every session that shows it has the same fingerprint."""
    if DEVICE_LOST in error:
        return DEVICE_LOST
    words = re.sub(r"[^A-Za-z_]+", "-", re.sub(r"\d+", "", error)).strip("-")
    return words[:80].rstrip("-")


def _accesses(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if not seen.forwards:
        return NOT_RUN
    return failed(*(_access(scenario, access) for access in seen.accesses[:1]))


def _access(scenario: SessionScenario, access: BadAccess) -> Finding:
    mode = access.sentence.split(",", 1)[0].replace(" ", "-")
    return session_finding("session-kv-access", mode, access.kind, scenario, access.sentence, access.consequence)


def _accounts(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if not seen.turns or scenario.streams == "late":
        return NOT_RUN  # the books are not looked at while the device is behind
    if not seen.accounts:
        return failed()
    meaning = "KV pages leak until requests are refused, or two requests write to one page"
    problem = seen.accounts[0]
    return failed(session_finding("session-accounts", "pages", _slug(problem), scenario, problem, meaning))


def _inputs(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    if not seen.forwards:
        return NOT_RUN
    if not seen.rewritten:
        return failed()
    first = seen.rewritten[0]
    pairs = zip(first.before, first.after, strict=True)
    place = next(index for index, (old, new) in enumerate(pairs) if old != new)
    when = "when the scheduler reads it" if first.name.startswith("result ") else "after the forward"
    message = f"{first.name}[{place}]={first.after[place]} {when}, but was published as {first.before[place]}"
    meaning = "the scheduler's own lengths drift: later steps read and write at wrong positions"
    return failed(
        session_finding(
            "session-inputs",
            first.name.replace(" ", "-"),
            first.dtype,
            scenario,
            message,
            meaning,
        )
    )


CHECKS = (
    Check("session-runs", "sessions", "The server starts, and answers to the end of the session.", is_session, _runs),
    Check(
        "session-kv-access",
        "sessions",
        "Attention reads slots that were written for its request; writes go to slots of the request, each once.",
        is_session,
        _accesses,
    ),
    Check(
        "session-accounts",
        "sessions",
        "At every turn each KV page is free, in the prefix tree or held by a request, and in one place only.",
        is_session,
        _accounts,
    ),
    Check(
        "session-inputs",
        "sessions",
        "What a worker publishes is not storage that a forward writes to, or a later step before it is read.",
        is_session,
        _inputs,
    ),
)
