"""The lengths of a session, forward by forward: what the worker publishes, and what attention is told."""

from collections.abc import Iterator, Sequence

from harness.checks.check import Check, MissingField
from harness.checks.finding import NOT_RUN, Finding, Outcome, failed
from harness.checks.session_server import is_session, seen_of
from harness.checks.wording import OVER, UNDER, session_finding
from harness.reference.session import increments, kv_lengths, published
from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import Forward, Observation


def _told(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    outcome = NOT_RUN
    for forward, step, read in _reads(seen_of(observations[0]).forwards):
        outcome = failed()
        right = kv_lengths(forward, step)
        if len(read) < len(right):
            raise MissingField(f"attention was told of {len(read)} rows for {len(right)} requests")
        for row, (actual, expected) in enumerate(zip(read, right, strict=False)):
            if actual != expected:
                return failed(_wrong(scenario, "session-kv-lengths", "kv_lengths", forward, row, actual, expected))
    return outcome


def _reads(forwards: Sequence[Forward]) -> Iterator[tuple[Forward, int, tuple[int, ...]]]:
    """Every list of lengths that attention was told, with its forward, and its step in a draft decode."""
    turn, step = -1, 0
    for forward in forwards:
        if not forward.visits:
            continue
        if forward.turn != turn or forward.mode != "draft_decode":
            turn, step = forward.turn, 0
        for read in forward.reads:
            yield forward, step, read
            step += forward.mode == "draft_decode"


def _published(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, SessionScenario)
    outcome = NOT_RUN
    for forward in seen_of(observations[0]).forwards:
        if forward.host is None or not forward.visits:
            continue
        outcome = failed()
        right = published(scenario, forward)
        for row, (actual, expected) in enumerate(zip(forward.host, right, strict=True)):
            if actual != expected:
                return failed(_wrong(scenario, "session-published", "seq_lens_cpu", forward, row, actual, expected))
    return outcome


def _progress(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    """Each verify commits one to D tokens, and as many as the request's histogram says."""
    assert isinstance(scenario, SessionScenario)
    seen = seen_of(observations[0])
    outcome = NOT_RUN
    for visit, answer in enumerate(seen.answers):
        moved = [amount for stretch in increments(seen.forwards, visit) for amount in stretch]
        if not moved:
            continue
        outcome = failed()
        block = max(forward.block for forward in seen.forwards)
        odd = next((amount for amount in moved if not 1 <= amount <= block), None)
        if odd is not None:
            return failed(_stalled(scenario, visit, f"moves by {odd}, but should move by 1 to {block}", "out-of-range"))
        if not answer.finished or answer.retractions:
            continue
        for accepted in range(block):
            count = moved.count(accepted + 1)
            counted = answer.accepted[accepted] if accepted < len(answer.accepted) else 0
            if count > counted:
                words = f"accepts {accepted} draft tokens in {count} verifies, and {counted} are counted"
                return failed(_stalled(scenario, visit, words, "miscounted"))
    return outcome


def _stalled(scenario: SessionScenario, visit: int, words: str, relation: str) -> Finding:
    message = f"the committed prefix of visit {visit} {words}"
    meaning = "the device's lengths and the scheduler's tokens part: outputs are wrong, or acceptance is misreported"
    return session_finding("session-progress", "seq_lens", relation, scenario, message, meaning, visit)


def _wrong(
    scenario: SessionScenario, check: str, field: str, forward: Forward, row: int, actual: int, expected: int
) -> Finding:
    difference = actual - expected
    relation = "too-long" if difference > 0 else "too-short"
    if forward.block and abs(difference) == forward.block:
        relation = "block-added-again" if difference > 0 else "block-missing"
    visit = forward.visits[row]
    place = f"{forward.mode}, turn {forward.turn}, prefix={forward.device[row]}"
    message = f"{field}[{row}]={actual}, but should be {expected}"
    named = f"{field}-{forward.mode}"
    meaning = OVER if difference > 0 else UNDER
    return session_finding(check, named, relation, scenario, message, meaning, visit, place)


CHECKS = (
    Check(
        "session-kv-lengths",
        "sessions",
        "Attention is told of exactly the positions that exist: the committed prefix and what this forward adds.",
        is_session,
        _told,
    ),
    Check(
        "session-published",
        "sessions",
        "Host lengths are those of the device, and the block beside them where the convention has the worker add it.",
        is_session,
        _published,
    ),
    Check(
        "session-progress",
        "sessions",
        "Every verify commits 1 to D tokens, and the counts of accepted tokens are those by which lengths grow.",
        is_session,
        _progress,
    ),
)
