"""The hunt: Hypothesis draws scenarios of one cell until no new finding turns up, and shrinks each one it meets."""

import contextlib

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from harness.campaign.profile import Profile
from harness.campaign.simplify import simplified
from harness.campaign.trial import Trial
from harness.checks.finding import Finding
from harness.errors import CannotJudge
from harness.scenario import Scenario

#: New findings taken from one cell; a cell with more is wrong all over, and says so with these.
MOST_FINDINGS = 12


class _Found(Exception):
    """Tells Hypothesis that the scenario still shows the finding that is being shrunk."""


def hunt(
    trial: Trial,
    strategy: SearchStrategy[Scenario],
    profile: Profile,
    run_seed: int | None,
    database: str | None = None,
) -> None:
    """Search `strategy` with `profile.examples` examples; again after each new finding, which is then known.

    What the tally has already (from pinned cases) is known from the start. While a finding is shrunk only its own
    fingerprint counts, so that a scenario cannot slip to another fault. What else the shrunk scenario shows is taken
    with it: it has become as small there. A finding that does not show again is kept as it was first seen.

    Without a seed the examples of the first search come from `database`, too. Raises CannotJudge when the subject is
    lost.
    """
    known = set(trial.tally.findings)
    store = DirectoryBasedExampleDatabase(database) if database and run_seed is None else None
    for number in range(MOST_FINDINGS):
        # A later search would find the stored examples right, as what they show is known, and drop them.
        search = _Search(trial, known)
        search.run(strategy, profile, run_seed, store if number == 0 else None)
        if search.smallest is not None:
            trial.tally.keep(search.smallest)
            known.add(search.smallest.fingerprint)
        if search.lost is not None:
            raise search.lost
        if search.smallest is None:
            return
        simplest = simplified(trial, search.smallest)
        for finding in trial.judge(simplest.scenario):
            known.add(finding.fingerprint)
            trial.tally.keep(finding)


class _Search:
    """One search for a finding that is not `known`: `smallest` is what came of it."""

    def __init__(self, trial: Trial, known: set[str]) -> None:
        self.trial = trial
        self.known = known
        self.smallest: Finding | None = None
        self.lost: CannotJudge | None = None

    def run(
        self, strategy: SearchStrategy[Scenario], profile: Profile, run_seed: int | None, store: ExampleDatabase | None
    ) -> None:
        """Let Hypothesis draw, and shrink what it finds."""
        searched = settings(
            max_examples=profile.examples,
            database=store,
            deadline=None,
            phases=(Phase.reuse, Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            print_blob=False,
        )(given(strategy)(lambda scenario: self._try(scenario)))
        if store is None:  # Hypothesis keeps no examples of a seeded test
            searched = seed(0 if profile.derandomize or run_seed is None else run_seed)(searched)
        with contextlib.suppress(_Found, Flaky):
            searched()

    def _try(self, scenario: Scenario) -> None:
        if self.lost is not None:
            return
        try:
            findings = self.trial.judge(scenario, self.smallest.check if self.smallest else "")
        except CannotJudge as error:
            self.lost = error
            return
        for finding in findings:
            wanted = {finding.fingerprint} if self.smallest is None else {self.smallest.fingerprint}
            if finding.fingerprint in wanted - self.known:
                self.smallest = finding
                raise _Found
