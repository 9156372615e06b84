"""One run: everything that a profile asks of one sglang, and what came of it."""

import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from hypothesis.strategies import SearchStrategy

from harness.campaign.hunt import hunt
from harness.campaign.profile import Profile
from harness.campaign.sweeping import run_sweep
from harness.campaign.tally import Counts, Tally
from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.gate import GATES
from harness.checks.registry import CHECKS, checks_of
from harness.errors import CannotJudge, Exit
from harness.inventory.axes import names_in
from harness.scenario.attention import attends, attention_scenarios
from harness.scenario.capability import missing
from harness.scenario.case import Case
from harness.scenario.session_strategies import engines, servers, sessions
from harness.scenario.strategies import cells, scenarios
from harness.scenario.sweep import sweep
from harness.scenario.verify_strategies import verifies, verify_cells
from harness.shadow.overhead import Overhead
from harness.subject.frames import SubjectInfo
from harness.subject.losses import Losses, LostScenario
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

#: The groups whose checks look at scenarios where attention runs.
ATTENTION_GROUPS = ("kv-bounds", "outputs")
#: Told what the run is at, and how far: a stage, steps done, steps in all.
Progress = Callable[[str, int, int], None]


class Run(msgspec.Struct, frozen=True):
    """The outcome of a run. `unknown` says, per check or for `subject`, why something could not be judged.

    `losses` counts how often the subject was lost, `lost` are the scenarios that do it every time, and `overhead` is
    what the sanitizer cost.
    """

    subject: SubjectInfo
    profile: str
    seed: int | None
    checks: dict[str, Counts]
    findings: list[Finding]
    unknown: dict[str, str] = {}
    losses: Losses = msgspec.field(default_factory=Losses)
    lost: tuple[LostScenario, ...] = ()
    overhead: Overhead = Overhead()

    @property
    def exit_status(self) -> Exit:
        """Findings come first: they are certain, whatever else could not be judged."""
        if self.findings:
            return Exit.FINDINGS
        return Exit.UNKNOWN if self.unknown else Exit.PASSED


class Plan(NamedTuple):
    """What to run: the check groups (all where empty), the profile, the seed and the device.

    `pinned` cases are judged first, by the checks of the group of their own check (by all, if they name none):
    what they show need not be searched for and shrunk again. The subject is started through the command `through`.
    """

    groups: tuple[str, ...]
    profile: Profile
    seed: int | None
    device: str = "emulated"
    pinned: tuple[Case, ...] = ()
    through: tuple[str, ...] = ()


def no_subject(source: Source, plan: Plan, why: str) -> Run:
    """The run of an sglang that could not be judged at all."""
    info = SubjectInfo("ascend", source.release, plan.device, {}, (), source.revision, source.spec)
    return Run(info, plan.profile.name, plan.seed, {}, [], {"subject": why})


def run(source: Source, plan: Plan, progress: Progress = lambda stage, done, total: None) -> Run:
    """Run `plan` on `source`; a subject that cannot be started or kept is a run with nothing but `unknown`."""
    checks = checks_of(plan.groups)
    try:
        supervisor = Supervisor(source, plan.device, plan.through)
    except CannotJudge as error:
        return no_subject(source, plan, str(error))
    info = supervisor.info
    checks = [check for check in checks if not check.needs or check.needs in info.capabilities]
    tally = Tally([check.id for check in checks])
    given_up = {}
    with supervisor:
        try:
            _everything(supervisor, plan, checks, tally, progress)
        except CannotJudge as error:
            given_up = {"subject": str(error)}
    unknown = given_up or dict.fromkeys(tally.never_ran, "it never ran") | tally.reasons
    findings = sorted(tally.findings.values(), key=lambda finding: finding.fingerprint)
    lost = tuple(LostScenario(scenario, fault) for scenario, fault in supervisor.faults.items())
    return Run(
        info,
        plan.profile.name,
        plan.seed,
        tally.checks,
        findings,
        unknown,
        supervisor.losses,
        lost,
        supervisor.overhead,
    )


def _everything(supervisor: Supervisor, plan: Plan, checks: Sequence[Check], tally: Tally, progress: Progress) -> None:
    trial = Trial(supervisor.observe, checks, tally)
    groups = {check.group for check in checks}
    for case in plan.pinned:
        if not missing(case.scenario, supervisor.info.capabilities):
            group = CHECKS[case.check].group if case.check in CHECKS else ""
            own = [check for check in checks if group in ("", check.group)]
            for finding in Trial(supervisor.observe, own, tally).judge(case.scenario):
                tally.keep(finding)
    if "guard" in groups:
        for scenario in GATES:
            for finding in trial.judge(scenario):
                tally.keep(finding)
    hunts = _hunts(supervisor, plan.profile, groups)
    for number, one in enumerate(hunts):
        progress(one.stage, number, len(hunts) + 1)
        selected = [check for check in checks if check.group in one.groups]
        database = example_database(plan.profile, one.stage)
        profile = plan.profile._replace(examples=one.examples)
        hunt(Trial(supervisor.observe, selected, tally), one.strategy, profile, plan.seed, database)
    if "metadata" in groups:
        progress("sweep", len(hunts), len(hunts) + 1)
        swept = sweep(plan.profile.sweep_blocks, plan.profile.sweep_pairs)
        run_sweep(supervisor.observe, checks, tally, swept)
    progress("done", len(hunts) + 1, len(hunts) + 1)


class Hunt(NamedTuple):
    """What to search, under which name, for which groups, and with how many examples."""

    stage: str
    strategy: SearchStrategy[Any]
    groups: Collection[str]
    examples: int


def _hunts(supervisor: Supervisor, profile: Profile, groups: Collection[str]) -> list[Hunt]:
    """Every hunt: metadata, attention that runs over it, verifies, and sessions server by server."""
    capabilities = supervisor.info.capabilities
    hunts: list[Hunt] = []
    if "metadata" in groups:
        named = [(str(cell), scenarios(cell, capabilities)) for cell in cells(capabilities)]
        hunts += [Hunt(name, strategy, ("metadata",), profile.examples) for name, strategy in named]
    running = [group for group in ATTENTION_GROUPS if group in groups]
    if running:
        attended = [cell for cell in cells(capabilities) if attends(cell)]
        named = [(f"{cell} attention", attention_scenarios(cell, capabilities)) for cell in attended]
        hunts += [Hunt(name, strategy, running, profile.runs) for name, strategy in named]
    if "accept" in groups:
        hunts += [
            Hunt(
                str(cell), verifies(cell, capabilities), ("accept",), profile.runs if cell.sampled else profile.examples
            )
            for cell in verify_cells(capabilities)
        ]
    if "sessions" in groups:
        known = names_in(Path(supervisor.source.path))
        started = [*servers(capabilities, known, profile.servers), *engines(capabilities, known, profile.engines)]
        hunts += [Hunt(str(server), sessions(server), ("sessions",), profile.sessions) for server in started]
    return hunts


def example_database(profile: Profile, stage: str = "") -> str | None:
    """Where nightly runs share failing examples: a folder per stage in `HARNESS_EXAMPLES`, else `.harness/examples`."""
    if profile.name != "nightly":
        return None
    return str(Path(os.environ.get("HARNESS_EXAMPLES") or ".harness/examples", stage.replace(" ", "-")))
