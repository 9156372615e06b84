"""Putting scenarios to a subject once, patched or not, and what every check says."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from harness.campaign.trial import Trial
from harness.checks.check import Check, no_variants
from harness.checks.finding import Verdict
from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import Observation
from harness.subject.frames import Observed
from harness.subject.patch import Patch
from harness.subject.supervisor import SESSION_LIMITS, Supervisor

#: Seconds for a frame, some hundred times what it takes; a mutant may go round in circles.
LIMIT = 40.0


class Word(NamedTuple):
    """What a check says of a scenario: the fingerprint of a finding, or `unknown`; `message` is for a reader."""

    check: str
    fingerprint: str
    message: str

    @property
    def unknown(self) -> bool:
        """Whether the check could not judge: the subject was lost, or what it reported is not whole."""
        return self.fingerprint == UNKNOWN


UNKNOWN = "unknown"


def alone(checks: Sequence[Check]) -> list[Check]:
    """Those that look at the scenario alone."""
    return [check for check in checks if check.variants is no_variants]


class Subject:
    """A subject whose scenarios are asked with `patch`, each once, in workers of their own."""

    def __init__(self, supervisor: Supervisor, patch: Patch | None = None, traced: bool = False) -> None:
        self.supervisor = supervisor
        self.patch = patch
        self.traced = traced
        #: Lines that were run since this was emptied, by file.
        self.lines: dict[str, set[int]] = {}

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        """One observation for each; where a frame is lost, the loss is that of all that are left in it."""
        seen: list[Observation] = []
        while len(seen) < len(scenarios):
            rest = _alike(scenarios[len(seen) :])
            answer = self._ask(rest)
            if answer.fault is not None:
                seen += [Observation(fault=answer.fault)] * len(rest)
            seen += answer.observations
            for file, lines in answer.executed.items():
                self.lines.setdefault(file, set()).update(lines)
        return seen

    def _ask(self, scenarios: Sequence[Scenario]) -> Observed:
        first = scenarios[0]
        limit = SESSION_LIMITS[first.subject] if isinstance(first, SessionScenario) else LIMIT
        answer = self.supervisor.observe_once(scenarios, limit, self.patch, self.traced)
        if answer.fault is not None and self.patch is None:  # nothing is wrong with sglang: a busy machine, say
            answer = self.supervisor.observe_once(scenarios, limit, self.patch, self.traced)
        return answer

    def words(self, checks: Sequence[Check], scenarios: Sequence[Scenario]) -> list[list[Word]]:
        """What `checks` say of each scenario, but for what they pass; what several need is observed once."""
        plans = [
            {check: Trial.needed(check, scenario) for check in checks if check.applies(scenario)}
            for scenario in scenarios
        ]
        wanted = list(dict.fromkeys(one for plan in plans for needed in plan.values() for one in needed))
        observed = dict(zip(wanted, self.observe(wanted), strict=True)) if wanted else {}
        return [
            [
                word
                for check, needed in plan.items()
                for word in _words(check, scenario, [observed[one] for one in needed])
            ]
            for scenario, plan in zip(scenarios, plans, strict=True)
        ]


def _words(check: Check, scenario: Scenario, observations: Sequence[Observation]) -> list[Word]:
    outcome = check.outcome(scenario, observations)
    if outcome.verdict is Verdict.UNKNOWN:
        return [Word(check.id, UNKNOWN, outcome.reason)]
    return [Word(check.id, finding.fingerprint, finding.message) for finding in outcome.findings]


def _alike(scenarios: Sequence[Scenario]) -> Sequence[Scenario]:
    """The first of `scenarios`, as far as one frame takes them: a session is a frame of its own."""
    if isinstance(scenarios[0], SessionScenario):
        return scenarios[:1]
    sessions = (place for place, one in enumerate(scenarios) if isinstance(one, SessionScenario))
    return scenarios[: next(sessions, len(scenarios))]


class Baseline(NamedTuple):
    """What is said of sglang as it is: `words` of each scene, and the lines that the scene runs, by file."""

    words: list[frozenset[Word]]
    lines: list[dict[str, frozenset[int]]]

    @property
    def known(self) -> set[tuple[str, str]]:
        """Check and fingerprint of everything that is said anywhere."""
        return {(word.check, word.fingerprint) for words in self.words for word in words if not word.unknown}

    @property
    def unjudged(self) -> list[int]:
        """The numbers of the scenes that some check could not judge; of a mutant they would say nothing."""
        return [place for place, words in enumerate(self.words) if any(word.unknown for word in words)]

    def reaching(self, file: str, lines: Collection[int]) -> list[int]:
        """The numbers of the scenes that run one of `lines` of `file`, but for the `unjudged`."""
        wanted, left_out = frozenset(lines), set(self.unjudged)
        return [
            place
            for place, run in enumerate(self.lines)
            if place not in left_out and wanted & run.get(file, frozenset())
        ]
