"""What each command does, with plain arguments; `cli.py` only parses them."""

import os
import shlex
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.bisect.scan import scan as scan_releases
from harness.bisect.transitions import transitions
from harness.campaign.acceptance import DRAFTED
from harness.campaign.acceptance import acceptance as measure_acceptance
from harness.campaign.profile import profile_named
from harness.campaign.run import Plan, Run
from harness.campaign.run import run as run_plan
from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Outcome
from harness.checks.registry import CHECKS, checks_of
from harness.doctor import Item, examine, has_npu, subjects
from harness.errors import CannotJudge, Exit, ReaderGone, UsageError
from harness.files import write_atomically
from harness.npu.presence import EMULATE
from harness.report import json as json_report
from harness.report.acceptance import show_acceptance
from harness.report.comparison import Replayed, show_replay
from harness.report.junit import junit as junit_report
from harness.report.progress import Bars
from harness.report.replay import unanswered_sentence, write_cases
from harness.report.terminal import show_run, show_scan
from harness.scenario.case import Case, read_cases
from harness.scenario.pinned import pinned_cases
from harness.subject import wheels
from harness.subject.pending import unanswered
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor

DEVICES = ("emulated", "npu")
#: Columns of tables where the output is no terminal, and nobody knows how wide it will be read.
PLAIN_WIDTH = 160


def check(
    spec: str | None,
    groups: Sequence[str],
    profile: str,
    seed: int | None,
    device: str,
    fresh: bool,
    json_file: Path | None,
    junit_file: Path | None,
    through: str | None = None,
) -> Exit:
    """Run the checks on one sglang, show the result and write the files that were asked for."""
    plan = _plan(groups, profile, seed, device, fresh)._replace(through=_words(through))
    with Bars(Console(stderr=True)) as bars:
        _mention_unanswered(bars)
        source = resolve(spec, bars.note)
        run = run_plan(
            source, plan, lambda stage, done, total: bars.advance(f"sglang {source.release}", stage, done, total)
        )
    show_run(_output(), run)
    write_cases(run)
    if json_file is not None:
        write_atomically(json_file, json_report.encode(json_report.run_document(run)))
    if junit_file is not None:
        write_atomically(junit_file, junit_report(run))
    return run.exit_status


def scan(
    first: str | None,
    last: str | None,
    groups: Sequence[str],
    profile: str,
    seed: int | None,
    fresh: bool,
    json_file: Path | None,
) -> Exit:
    """Run the checks on every release from `first` to `last`, show the history and write the JSON asked for."""
    plan = _plan(groups, profile, seed, "emulated", fresh)
    with Bars(Console(stderr=True)) as bars:
        _mention_unanswered(bars)
        releases = wheels.releases_between(first, last, bars.note)
        sources = [resolve(release, bars.note) for release in releases]
        runs = scan_releases(sources, plan, lambda release, *rest: bars.advance(f"sglang {release}", *rest))
    changes = transitions(runs)
    show_scan(_output(), runs, changes)
    for run in runs:
        write_cases(run)
    if json_file is not None:
        write_atomically(json_file, json_report.encode(json_report.scan_document(runs, changes)))
    return combined(runs)


def acceptance(first: str | None, last: str | None, algorithms: Sequence[str]) -> Exit:
    """Show how much of its draft each release from `first` to `last` accepts; answers that are wrong are findings."""
    for algorithm in algorithms:
        if algorithm not in DRAFTED:
            raise UsageError(f"there is no trained draft for {algorithm!r}: there is one for {', '.join(DRAFTED)}.")
    asked = [algorithm for algorithm in DRAFTED if not algorithms or algorithm in algorithms]
    with Bars(Console(stderr=True)) as bars:
        sources = [resolve(release, bars.note) for release in wheels.releases_between(first, last, bars.note)]
        found = measure_acceptance(sources, asked, bars.note)
    show_acceptance(_output(), found)
    return Exit.FINDINGS if any(one.wrong or one.error for one in found) else Exit.PASSED


def combined(runs: Sequence[Run]) -> Exit:
    """The status of several runs: a finding anywhere, else anything that could not be judged."""
    statuses = [run.exit_status for run in runs]
    return next((status for status in (Exit.FINDINGS, Exit.UNKNOWN) if status in statuses), Exit.PASSED)


def replay(case_file: Path, specs: Sequence[str], device: str) -> Exit:
    """Run the cases of a file on each of `specs`, or on the default sglang, and show them side by side.

    A case that names its check is judged by that check; one that names none by all that apply. Of several cases those
    are shown that some sglang did not pass.
    """
    cases = read_cases(case_file)
    for case in cases:
        if case.check and case.check not in CHECKS:
            raise UsageError(f"{case_file} names the check {case.check!r}, which this harness does not have.")
    _require_device(device)
    with Bars(Console(stderr=True)) as bars:
        sources = [resolve(spec, bars.note) for spec in specs] or [resolve(None, bars.note)]
        side_by_side = list(zip(*(_replayed(source, cases, device) for source in sources), strict=True))
    console = _output()
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


class _Output(Console):
    """Stdout. A reader that went away is an error of its own: Rich would end with status 1, which means findings."""

    def on_broken_pipe(self) -> None:
        raise ReaderGone


def _output() -> Console:
    """Fingerprints have colons, and `:end:` is no emoji."""
    console = _Output(emoji=False)
    return console if console.is_terminal else _Output(width=PLAIN_WIDTH, emoji=False)


def emulate(spec: str | None, command: Sequence[str]) -> NoReturn:
    """Become `command`, in whose Python processes `import torch` emulates an NPU and `import sglang` finds `spec`."""
    declared = {point.value for point in entry_points(group="torch.backends")}
    if "harness.npu.autoload:autoload" not in declared:
        raise UsageError("the harness is not installed in this environment: `pip install` it, anew if it is old.")
    with Bars(Console(stderr=True)) as bars:
        source = resolve(spec, bars.note)
    inherited = os.environ.get("PYTHONPATH")
    environment = os.environ | {
        EMULATE: "1",
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([source.path, inherited] if inherited else [source.path]),
    }
    try:
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}.") from None


def doctor() -> Exit:
    """Show what is here and which subjects it makes possible; status 3 where there is none."""
    console = _output()
    items = examine()
    possible = subjects(items)
    for title, rows in (("this machine", items), ("subjects", possible)):
        console.print(_table(title, rows))
    return Exit.PASSED if any(item.present for item in possible) else Exit.UNKNOWN


def _table(title: str, items: Sequence[Item]) -> Table:
    table = Table(title, "", "found")
    for item in items:
        table.add_row(item.name, "[green]yes[/]" if item.present else "[yellow]no[/]", escape(item.detail))
    return table


def _plan(groups: Sequence[str], profile: str, seed: int | None, device: str, fresh: bool) -> Plan:
    checks_of(groups)
    _require_device(device)
    pinned = () if fresh else tuple(pinned_cases().values())
    return Plan(tuple(groups), profile_named(profile), seed, device, pinned)


def _words(through: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(through or ""))
    except ValueError as error:
        raise UsageError(f"--through {through!r} is no command: {error}.") from error


def _mention_unanswered(bars: Bars) -> None:
    """Tell of every scenario whose harness ended before its answer came."""
    for left in unanswered():
        bars.note(unanswered_sentence(left))


def _require_device(device: str) -> None:
    if device not in DEVICES:
        raise UsageError(f"there is no device {device!r}: the devices are {', '.join(DEVICES)}.")
    if device == "npu" and not has_npu():
        raise CannotJudge("no NPU can be used here: `harness doctor` says what is missing.")
