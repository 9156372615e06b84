"""Checking one sglang, or every release of a range."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.bisect.scan import scan as scan_releases
from harness.bisect.transitions import transitions
from harness.campaign.run import run as run_plan
from harness.commands.console import output
from harness.commands.plans import combined, mention_unanswered, planned, through_words
from harness.errors import Exit
from harness.files import write_atomically
from harness.report.document import encode
from harness.report.json import run_document, scan_document
from harness.report.junit import junit as junit_report
from harness.report.progress import Bars
from harness.report.replay import write_cases
from harness.report.terminal import show_run, show_scan
from harness.subject import wheels
from harness.subject.source import resolve


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
    plan = planned(groups, profile, seed, device, fresh)._replace(through=through_words(through))
    with Bars(Console(stderr=True)) as bars:
        mention_unanswered(bars)
        source = resolve(spec, bars.note)
        run = run_plan(
            source, plan, lambda stage, done, total: bars.advance(f"sglang {source.release}", stage, done, total)
        )
    show_run(output(), run)
    write_cases(run)
    if json_file is not None:
        write_atomically(json_file, encode(run_document(run)))
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
    jobs: int | None = None,
) -> Exit:
    """Run the checks on every release from `first` to `last`, show the history and write the JSON asked for.

    `jobs` releases are checked side by side, as many as there are cores where it is None. What an earlier scan has
    judged is taken from the cache, unless everything is to be `fresh`.
    """
    plan = planned(groups, profile, seed, "emulated", fresh)
    with Bars(Console(stderr=True)) as bars:
        mention_unanswered(bars)
        releases = wheels.releases_between(first, last, bars.note)
        sources = [resolve(release, bars.note) for release in releases]
        runs = scan_releases(
            sources, plan, lambda release, *rest: bars.advance(f"sglang {release}", *rest), jobs, fresh
        )
    changes = transitions(runs)
    show_scan(output(), runs, changes)
    for run in runs:
        write_cases(run)
    if json_file is not None:
        write_atomically(json_file, encode(scan_document(runs, changes)))
    return combined(runs)
