"""Faults of public reports, planted in a release: which the acceptance table shows, and one that it does not."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from harness.campaign.accept_tiny import Cell, judged, play, records, reference, replayed
from harness.mutate.faults import known_faults
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_run import assembled
from harness.parity.acceptance_verdict import Verdict
from harness.scenario.metadata import Algorithm, Executor
from harness.scenario.observation import Observation
from harness.subject.source import resolve
from harness.subject.supervisor import SESSION_LIMITS, Supervisor

pytestmark = pytest.mark.slow

KNOWN = known_faults()


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    with Supervisor(resolve(KNOWN.release)) as started:
        yield started


def planted(supervisor: Supervisor, name: str) -> Any:
    """The subject with the fault of that name."""
    (fault,) = (one for one in KNOWN.faults if one.name == name)
    patch = fault.patch(Path(supervisor.source.path))

    def observe(scenarios: list[Any]) -> tuple[Observation, ...]:
        return supervisor.observe_once(scenarios, SESSION_LIMITS["worker"], patch).observations

    return SimpleNamespace(observe=observe, info=supervisor.info)


def cell(supervisor: Supervisor, fault: str, algorithm: Algorithm, executor: Executor) -> Cell:
    """The cell of the table with the fault."""
    return judged(play(planted(supervisor, fault), algorithm, executor))


def test_lengths_of_the_capture_lower_what_graphs_accept_and_change_answers(supervisor: Supervisor) -> None:
    """C29, A1: eager is right, as the table of the unchanged release shows."""
    found = cell(supervisor, "graph-list-of-the-capture", "DFLASH", "graph").comparison

    assert found is not None
    assert (found.verdict, found.rungs[0].verdict) == (Verdict.NOT_LOSSLESS, Verdict.REGRESSED)


def test_steps_that_share_their_locations_lower_acceptance_alone_and_both_rungs_show_it(supervisor: Supervisor) -> None:
    """D7, D21: every answer is right, so nothing but the lengths tells."""
    subject, right = planted(supervisor, "steps-share-their-locations"), reference("EAGLE")
    played = play(subject, "EAGLE", "eager")
    steps = replayed(subject, played, right, right.header.stride)
    header = msgspec.structs.replace(played.header, base=right.digest, stride=right.header.stride)
    found = compare(right, assembled(Path("planted"), header, [*records(played), *steps]))

    assert found.exactness.wrong == 0
    assert {rung.design: rung.verdict for rung in found.rungs} == {
        "replay": Verdict.REGRESSED,
        "free": Verdict.REGRESSED,
    }
    assert sum(one.lost or 0 for one in found.rungs[0].shifts) > sum(one.won or 0 for one in found.rungs[0].shifts)


def test_what_costs_the_trained_draft_less_than_the_margin_is_not_shown(supervisor: Supervisor) -> None:
    """A8, whose unseen part this is: it loses 0.3 %."""
    found = cell(supervisor, "steps-not-counted-eager", "EAGLE", "eager").comparison

    assert found is not None
    assert found.verdict is Verdict.EQUIVALENT and found.rungs[0].difference.estimate < 0
