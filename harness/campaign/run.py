"""One run: everything that a profile asks of one sglang, and what came of it."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.campaign.hunt import hunt
from harness.campaign.profile import Profile
from harness.campaign.sweeping import run_sweep
from harness.campaign.tally import Counts, Tally
from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.gate import SUPPORTED, UNSUPPORTED
from harness.checks.registry import checks_of
from harness.errors import CannotJudge, Exit
from harness.scenario import GateScenario, Scenario
from harness.scenario.capability import missing
from harness.scenario.strategies import cells, scenarios
from harness.scenario.sweep import sweep
from harness.subject.frames import SubjectInfo
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

#: Told what the run is at, and how far: a stage, steps done, steps in all.
Progress = Callable[[str, int, int], None]


class Run(msgspec.Struct, frozen=True):
    """The outcome of a run. `unknown` says, per check or for `subject`, why something could not be judged."""

    subject: SubjectInfo
    profile: str
    seed: int | None
    checks: dict[str, Counts]
    findings: list[Finding]
    unknown: dict[str, str] = {}

    @property
    def exit_status(self) -> Exit:
        """Findings come first: they are certain, whatever else could not be judged."""
        if self.findings:
            return Exit.FINDINGS
        return Exit.UNKNOWN if self.unknown else Exit.PASSED


class Plan(NamedTuple):
    """What to run: the check groups (all where empty), the profile, the seed and the device.

    `pinned` scenarios are judged first: what they show need not be searched for and shrunk again.
    """

    groups: tuple[str, ...]
    profile: Profile
    seed: int | None
    device: str = "emulated"
    pinned: tuple[Scenario, ...] = ()


def no_subject(source: Source, plan: Plan, why: str) -> Run:
    """The run of an sglang that could not be judged at all."""
    info = SubjectInfo("ascend", source.release, plan.device, {}, (), source.revision, source.spec)
    return Run(info, plan.profile.name, plan.seed, {}, [], {"subject": why})


def run(source: Source, plan: Plan, progress: Progress = lambda stage, done, total: None) -> Run:
    """Run `plan` on `source`; a subject that cannot be started or kept is a run with nothing but `unknown`."""
    checks = checks_of(plan.groups)
    try:
        supervisor = Supervisor(source, plan.device)
    except CannotJudge as error:
        return no_subject(source, plan, str(error))
    info = supervisor.info
    checks = [check for check in checks if not check.needs or check.needs in info.capabilities]
    tally = Tally([check.id for check in checks])
    lost = {}
    with supervisor:
        try:
            _everything(supervisor, plan, checks, tally, progress)
        except CannotJudge as error:
            lost = {"subject": str(error)}
    unknown = lost or dict.fromkeys(tally.never_ran, "it never ran") | tally.reasons
    findings = sorted(tally.findings.values(), key=lambda finding: finding.fingerprint)
    return Run(info, plan.profile.name, plan.seed, tally.checks, findings, unknown)


def _everything(supervisor: Supervisor, plan: Plan, checks: Sequence[Check], tally: Tally, progress: Progress) -> None:
    trial = Trial(supervisor.observe, checks, tally)
    groups = {check.group for check in checks}
    for scenario in plan.pinned:
        if not missing(scenario, supervisor.info.capabilities):
            for finding in trial.judge(scenario):
                tally.keep(finding)
    if "guard" in groups:
        for device in (*SUPPORTED, *UNSUPPORTED):
            for finding in trial.judge(GateScenario(device)):
                tally.keep(finding)
    if "metadata" not in groups:
        return
    database = example_database(plan.profile)
    space = cells(supervisor.info.capabilities)
    for number, cell in enumerate(space):
        progress(str(cell), number, len(space) + 1)
        strategy = scenarios(cell, supervisor.info.capabilities)
        hunt(trial, strategy, plan.profile, plan.seed, database and str(Path(database, str(cell).replace(" ", "-"))))
    progress("sweep", len(space), len(space) + 1)
    swept = sweep(plan.profile.sweep_blocks, plan.profile.sweep_pairs)
    run_sweep(supervisor.observe, checks, tally, swept)
    progress("done", len(space) + 1, len(space) + 1)


def example_database(profile: Profile) -> str | None:
    """Where failing examples are shared between nightly runs: `HARNESS_EXAMPLES`, else `.harness/examples`."""
    if profile.name != "nightly":
        return None
    return os.environ.get("HARNESS_EXAMPLES") or str(Path(".harness", "examples"))
