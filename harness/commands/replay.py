"""Running one case again."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Outcome
from harness.checks.registry import CHECKS
from harness.commands.console import output
from harness.commands.plans import require_device
from harness.errors import Exit, UsageError
from harness.report.comparison import Replayed, show_replay
from harness.report.progress import Bars
from harness.scenario.case import Case, read_cases
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor


def replay(case_file: Path, specs: Sequence[str], device: str) -> Exit:
    """Run the cases of a file on each of `specs`, or on the default sglang, and show them side by side.

    A case that names its check is judged by that check; one that names none by all that apply. Of several cases those
    are shown that some sglang did not pass.
    """
    cases = read_cases(case_file)
    for case in cases:
        if case.check and case.check not in CHECKS:
            raise UsageError(f"{case_file} names the check {case.check!r}, which this harness does not have.")
    require_device(device)
    with Bars(Console(stderr=True)) as bars:
        sources = [resolve(spec, bars.note) for spec in specs] or [resolve(None, bars.note)]
        side_by_side = list(zip(*(_replayed(source, cases, device) for source in sources), strict=True))
    console = output()
    outcomes = []
    for case, replays in zip(cases, side_by_side, strict=True):
        own = [outcome.verdict.value for replay in replays for outcome in replay.outcomes.values()]
        faultless = all(replay.observation.fault is None for replay in replays) and set(own) <= {"pass", "not run"}
        if len(cases) == 1 or not faultless:
            show_replay(console, case.scenario, replays)
        outcomes += own
    if len(cases) > 1:
        console.print(f"{len(cases)} scenarios were replayed; what is not shown above was answered and passed.")
    if "fail" in outcomes:
        return Exit.FINDINGS
    return Exit.PASSED if outcomes and set(outcomes) == {"pass"} else Exit.UNKNOWN


def _replayed(source: Source, cases: Sequence[Case], device: str) -> list[Replayed]:
    """Each scenario is asked alone first, so that one that costs the subject, or the machine, is known by itself."""
    replays = []
    with Supervisor(source, device) as supervisor:
        for case in cases:
            (observation,) = supervisor.observe([case.scenario])
            checks = [CHECKS[case.check]] if case.check else list(CHECKS.values())
            outcomes: dict[Check, Outcome] = {}
            for one in (check for check in checks if check.applies(case.scenario)):
                observations = supervisor.observe(Trial.needed(one, case.scenario))
                outcomes[one] = one.outcome(case.scenario, observations)
            replays.append(Replayed(supervisor.info, observation, outcomes))
    return replays
