"""Sessions on random targets of every kind, in a release: right ones pass every law, a known fault is seen."""

import pytest

from harness.checks.finding import Verdict
from harness.checks.registry import checks_of
from harness.models.store import RANDOM
from harness.scenario.metadata import Algorithm
from harness.scenario.session import SessionScenario, SessionTarget, Visit
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor

#: Prompts around the end of a page, one of which the window of `swa` does not reach across, and a shared beginning.
VISITS = (Visit(130, 12, text=1), Visit(250, 12, text=2), Visit(250, 6, text=2, own=10, arrives=20))
#: Without it, window layers read pages of the full pool (`docs/newest-release.md`).
FIA = (("ASCEND_USE_FIA", "1"),)


def verdicts(release: str, scenario: SessionScenario) -> dict[str, Verdict]:
    """The verdict of every check of sessions."""
    with Supervisor(resolve(release)) as supervisor:
        observations = supervisor.observe([scenario])
    return {check.id: check.outcome(scenario, observations).verdict for check in checks_of(["sessions"])}


@pytest.mark.slow
@pytest.mark.parametrize("target", RANDOM)
def test_a_session_of_0_5_23_keeps_every_law(target: SessionTarget) -> None:
    found = verdicts("0.5.23", SessionScenario("DFLASH", VISITS, target=target, environment=FIA))

    assert set(found.values()) == {Verdict.PASS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "target", "algorithm", "broken"),
    [
        # The block is added twice.
        ("0.5.18", "mla", "DFLASH", {"session-kv-lengths", "session-kv-access", "session-lossless"}),
        # A window layer attends to everything.
        ("0.5.23", "swa", "NONE", {"session-lossless"}),
    ],
)
def test_what_a_release_does_wrong_on_a_target_is_seen(
    release: str, target: SessionTarget, algorithm: Algorithm, broken: set[str]
) -> None:
    found = verdicts(release, SessionScenario(algorithm, VISITS, target=target))

    assert {check for check, verdict in found.items() if verdict == Verdict.FAIL} == broken
    assert Verdict.UNKNOWN not in found.values()
