"""What a user reads: tables and findings, through Rich; plain lines where the output is no terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.bisect.transitions import Transition, all_findings, state
from harness.campaign.run import Run
from harness.campaign.tally import size
from harness.checks.finding import Finding
from harness.checks.registry import CHECKS
from harness.report.judgement import ORDER, judge
from harness.report.replay import command, lost_command

COLOURS = {"fault": "bold red", "unjudged": "bold red", "opt-in": "yellow", "latent": "yellow", "harmless": "dim"}
#: Scenarios that cost their subject; what one release loses is mostly one thing.
MOST_LOST = 3
SIGNS = {"wrong": "[bold red]✗[/]", "right": "[green]·[/]", "unknown": "[yellow]?[/]", "absent": " "}


def name(run: Run) -> str:
    """How a run's sglang is called in a table, as markup."""
    return escape(run.subject.release or run.subject.spec)


def by_weight(findings: Iterable[Finding]) -> list[Finding]:
    """Findings, those that hurt most first; of these the plainest check, and of that the simplest scenario first."""
    checks = list(CHECKS)

    def weight(finding: Finding) -> tuple[int, int, tuple[int, int]]:
        kind = judge(finding.fingerprint).kind
        return ORDER.index(kind), checks.index(finding.check), size(finding)

    return sorted(findings, key=weight)


def show_subject(console: Console, run: Run) -> None:
    """One line: who was judged, on what, and with which profile and seed."""
    versions = " ".join(f"{key} {value}" for key, value in run.subject.versions.items())
    revision = f" at {run.subject.revision[:12]}" if run.subject.revision else ""
    console.print(
        escape(
            f"sglang {run.subject.release}{revision} ({run.subject.spec}), device {run.subject.device}, {versions}, "
            f"profile {run.profile}, seed {'random' if run.seed is None else run.seed}"
        ),
        highlight=False,
        soft_wrap=True,
    )


def show_run(console: Console, run: Run) -> None:
    """Subject, counts per check, every finding with its judgement and replay command, and what was not judged."""
    show_subject(console, run)
    if run.checks:
        table = Table("check", "ran", "failed", "unknown", "claim")
        for check_id, counts in run.checks.items():
            failed = f"[red]{counts.failed}[/]" if counts.failed else "0"
            unknown = f"[yellow]{counts.unknown}[/]" if counts.unknown else "0"
            table.add_row(check_id, str(counts.ran), failed, unknown, CHECKS[check_id].claim)
        console.print(table)
    for finding in by_weight(run.findings):
        show_finding(console, run, finding)
    for subject, reason in run.unknown.items():
        console.print(f"[yellow]UNKNOWN[/] {escape(subject)}: {escape(reason)}", highlight=False, soft_wrap=True)
    for line in losses(run):
        console.print(escape(line), highlight=False, soft_wrap=True)
    if run.overhead.sanitizer:
        console.print(overhead(run), highlight=False, soft_wrap=True)
    console.print(verdict(run), highlight=False, soft_wrap=True)


def losses(run: Run) -> list[str]:
    """How often the subject was lost by chance, and which scenarios cost it every time; nothing where none was."""
    lines = []
    for lost in run.lost[:MOST_LOST]:
        said = f" Its last words: {lost.fault.last_words}" if lost.fault.last_words else ""
        lines += [f"LOST {lost.fault.cause}: {lost.fault.reason}.{said}", f"  replay: {lost_command(run, lost)}"]
    if len(run.lost) > MOST_LOST:
        lines.append(f"{len(run.lost) - MOST_LOST} more scenarios cost the subject: see .harness/lost.")
    if run.losses.unreproduced:
        lines.append(
            f"The subject was lost {run.losses.unreproduced} times by chance (the last one {run.losses.last}): asked "
            "again, it answered every scenario of these."
        )
    return lines


def overhead(run: Run) -> str:
    """What the sanitizer cost."""
    cost = run.overhead
    return (
        f"The sanitizer took {cost.sanitizer:.2f} s of the {cost.watched:.2f} s in which attention ran: it added "
        f"{cost.added:.1%}."
    )


def verdict(run: Run) -> str:
    """The last line: how many findings of which weight, or that nothing was found."""
    if not run.findings:
        return "No verdict: see UNKNOWN above." if run.unknown else "All checks ran and passed."
    kinds = [judge(finding.fingerprint).kind for finding in run.findings]
    weights = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ORDER if kind in kinds)
    return f"{len(kinds)} findings: {weights}."


def show_finding(console: Console, run: Run, finding: Finding) -> None:
    """A finding in four lines: what is wrong, what it means, how it was judged, how to see it again."""
    judgement = judge(finding.fingerprint)
    reports = f" ({', '.join(judgement.reports)})" if judgement.reports else ""
    lines = (
        f"\n[{COLOURS[judgement.kind]}]{judgement.kind.upper()}[/] [bold]{escape(finding.fingerprint)}[/]",
        f"  {escape(finding.message)}",
        f"  why it matters: {escape(finding.meaning)}",
        f"  judgement: {escape(judgement.why)}{reports}",
        f"  replay: {escape(command(run, finding))}",
    )
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


def show_scan(console: Console, runs: Sequence[Run], transitions: Sequence[Transition]) -> None:
    """Release by group, the heaviest finding of each failing cell, then every finding along the releases."""
    groups = list(dict.fromkeys(CHECKS[check_id].group for run in runs for check_id in run.checks)) or ["metadata"]
    table = Table("release", *groups)
    for run in runs:
        table.add_row(name(run), *(_cell(run, group) for group in groups))
    console.print(table)
    for run in runs:
        for group in groups:
            for finding in by_weight(_of_group(run, group))[:1]:
                console.print(
                    f"\n[bold]{name(run)} {group}[/]: {escape(finding.message)}", soft_wrap=True, highlight=False
                )
                console.print(f"  {escape(command(run, finding))}", soft_wrap=True, highlight=False)
        for subject, reason in run.unknown.items():
            console.print(f"\n[yellow]{name(run)} UNKNOWN[/] {escape(subject)}: {escape(reason)}", soft_wrap=True)
        for line in losses(run):
            console.print(f"{name(run)} {escape(line)}", soft_wrap=True, highlight=False)
    _show_history(console, runs)
    _show_transitions(console, runs, transitions)


def _of_group(run: Run, group: str) -> list[Finding]:
    return [finding for finding in run.findings if CHECKS[finding.check].group == group]


def _cell(run: Run, group: str) -> str:
    found = _of_group(run, group)
    if found:
        heavy = sum(judge(finding.fingerprint).kind in ("fault", "unjudged") for finding in found)
        return f"[red]{len(found)} findings[/], {heavy} that users meet" if heavy else f"{len(found)} lesser findings"
    unknown = "subject" in run.unknown or any(CHECKS[c].group == group for c in run.unknown if c in CHECKS)
    return "[yellow]UNKNOWN[/]" if unknown else "[green]right[/]"


def _show_history(console: Console, runs: Sequence[Run]) -> None:
    findings = by_weight(all_findings(runs).values())
    shown = [finding for finding in findings if judge(finding.fingerprint).kind != "harmless"]
    if not findings:
        return
    table = Table(title="wrong ✗, right ·, not known ?", title_justify="left")
    table.add_column("finding", overflow="fold")
    for heading in (*(name(run).removeprefix("0.5.") for run in runs), "judgement"):
        table.add_column(heading, no_wrap=True)
    for finding in shown:
        signs = [SIGNS[state(run, finding)] for run in runs]
        kind = judge(finding.fingerprint).kind
        table.add_row(escape(finding.fingerprint), *signs, f"[{COLOURS[kind]}]{kind}[/]")
    console.print()
    console.print(table)
    if len(shown) < len(findings):
        console.print(f"{len(findings) - len(shown)} findings that are harmless are left out: see --json.")


def _show_transitions(console: Console, runs: Sequence[Run], transitions: Sequence[Transition]) -> None:
    """Every change, between the two releases where it happened, with the link of what lies between their tags."""
    place = {run.subject.release: number for number, run in enumerate(runs)}
    neighbours = dict.fromkeys((change.older, change.newer) for change in transitions)
    for older, newer in sorted(neighbours, key=lambda two: [place[release] for release in two]):
        there = [change for change in transitions if (change.older, change.newer) == (older, newer)]
        console.print(f"\n{escape(f'{older} → {newer}  {there[0].link}')}", highlight=False, soft_wrap=True)
        for change in sorted(there, key=lambda one: ORDER.index(judge(one.fingerprint).kind)):
            kind = judge(change.fingerprint).kind
            between = f", {', '.join(change.skipped)} not judged" if change.skipped else ""
            line = f"  {change.change} [{COLOURS[kind]}]{kind}[/] {escape(change.fingerprint + between)}"
            console.print(line, highlight=False, soft_wrap=True)
