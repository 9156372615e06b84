"""The hunt: Hypothesis draws scenarios of one cell until no new finding turns up, and shrinks each one it meets."""

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.strategies import SearchStrategy

from harness.campaign.profile import Profile
from harness.campaign.trial import Trial
from harness.checks.finding import Finding
from harness.scenario import Scenario

#: New findings taken from one cell; a cell with more is wrong all over, and says so with these.
MOST_FINDINGS = 12


class _Found(Exception):
    """Tells Hypothesis that the scenario still shows the finding that is being shrunk."""


def hunt(
    trial: Trial, strategy: SearchStrategy[Scenario], profile: Profile, run_seed: int, database: str | None = None
) -> None:
    """Search `strategy` with `profile.examples` examples; again after each new finding, which is then known.

    What the tally has already (from pinned cases) is known from the start.

    While a finding is shrunk only its own fingerprint counts, so that a scenario cannot slip to another fault. What
    else the shrunk scenario shows is taken with it: it has become as small there.
    """
    known = set(trial.tally.findings)
    store: ExampleDatabase | None = DirectoryBasedExampleDatabase(database) if database else None
    for _ in range(MOST_FINDINGS):
        smallest = _search(trial, strategy, profile, run_seed, store, known)
        if smallest is None:
            return
        for finding in [smallest, *trial.judge(smallest.scenario)]:
            known.add(finding.fingerprint)
            trial.tally.keep(finding)


def _search(
    trial: Trial,
    strategy: SearchStrategy[Scenario],
    profile: Profile,
    run_seed: int,
    store: ExampleDatabase | None,
    known: set[str],
) -> Finding | None:
    smallest: Finding | None = None

    @seed(0 if profile.derandomize else run_seed)
    @settings(
        max_examples=profile.examples,
        database=store,
        deadline=None,
        phases=(Phase.reuse, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def search(scenario: Scenario) -> None:
        nonlocal smallest
        only = smallest.check if smallest else ""
        for finding in trial.judge(scenario, only):
            if finding.fingerprint not in known and (smallest is None or finding.fingerprint == smallest.fingerprint):
                smallest = finding
                raise _Found

    try:
        search()
    except _Found:
        return smallest
    return None
