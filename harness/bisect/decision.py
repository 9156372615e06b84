"""Deciding a case on one sglang: as many runs as it takes, on one subject that is kept warm."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from harness.bisect.sequential import MOST_RUNS, Rates, SequentialTest, lower_bound, rates
from harness.bisect.verdict import Answer, Shown, run_case
from harness.campaign.trial import Observe
from harness.errors import NoSubject
from harness.scenario import SessionScenario
from harness.scenario.case import Case
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was decided of one case on one sglang, after `runs` runs of which `shown` showed the finding.

    `message` has the actual and the expected value, `values` the field as it was seen in the last run, `reason` says
    why it is unknown, and `others` are the findings beside it that did not count.
    """

    answer: Answer
    runs: int
    shown: int
    message: str = ""
    values: str = ""
    reason: str = ""
    others: tuple[str, ...] = ()


def decide(case: Case, observe: Observe, capabilities: Collection[str], between: Rates) -> Decision:
    """Run `case` until the sequential test between two rates ends; a run that cannot be judged ends it as unknown."""
    test = SequentialTest(between)
    worst: Shown | None = None
    while test.decided is None:
        if test.runs == MOST_RUNS:
            why = f"{test.shown} of {test.runs} runs showed it: too many for good and too few for bad"
            return Decision("unknown", test.runs, test.shown, reason=why)
        seen = run_case(case, observe, capabilities)
        if seen.answer == "unknown":
            return Decision("unknown", test.runs, test.shown, reason=seen.reason, others=seen.others)
        test.add(seen.answer == "bad")
        if worst is None or seen.answer == "bad":
            worst = seen
    assert worst is not None
    answer: Answer = "bad" if test.decided else "good"
    return Decision(answer, test.runs, test.shown, worst.message, worst.values, others=worst.others)


#: Runs at the bad end that tell a finding that always shows from one that shows sometimes; a session takes seconds.
FIRST_RUNS, FIRST_SESSIONS = 10, 3
#: Runs that measure how often one shows that does so sometimes.
MEASURING_RUNS = 60


def measure(case: Case, observe: Observe, capabilities: Collection[str]) -> Decision:
    """Run `case` often enough to know how often it shows: bad if it does at all, with `shown` of `runs`."""
    runs = FIRST_SESSIONS if isinstance(case.scenario, SessionScenario) else FIRST_RUNS
    seen: list[Shown] = []
    while len(seen) < runs:
        seen.append(run_case(case, observe, capabilities))
        if seen[-1].answer == "unknown":
            break
        if len(seen) == runs < MEASURING_RUNS and len({one.answer for one in seen}) > 1:
            runs = MEASURING_RUNS
    shown = [one for one in seen if one.answer == "bad"]
    worst = seen[-1] if seen[-1].answer == "unknown" or not shown else shown[0]
    return Decision(worst.answer, len(seen), len(shown), worst.message, worst.values, worst.reason, worst.others)


def rates_at(end: Decision) -> Rates:
    """The rates to search with, after what was measured at the bad `end`, where the finding shows at least once."""
    return rates(1.0 if end.shown in (0, end.runs) else lower_bound(end.shown, end.runs))


class Subject(NamedTuple):
    """How subjects are started: on which device, and through which command."""

    device: str = "emulated"
    through: tuple[str, ...] = ()


def decide_all(source: Source, asked: Sequence[tuple[Case, Rates | None]], subject: Subject) -> list[Decision]:
    """Decide every case on `source`, with one subject; without rates it is measured how often it shows.

    A subject that cannot be started makes them all unknown.
    """
    try:
        supervisor = Supervisor(source, subject.device, subject.through)
    except NoSubject as error:
        return [Decision("unknown", 0, 0, reason=str(error))] * len(asked)
    with supervisor:
        capabilities, observe = supervisor.info.capabilities, supervisor.observe
        return [
            measure(case, observe, capabilities) if between is None else decide(case, observe, capabilities, between)
            for case, between in asked
        ]
