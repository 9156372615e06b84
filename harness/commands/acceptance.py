"""How much each release accepts of the trained drafts."""

from collections.abc import Sequence

from rich.console import Console

from harness.campaign.acceptance import DRAFTED
from harness.campaign.acceptance import acceptance as measure_acceptance
from harness.commands.console import output
from harness.errors import Exit, UsageError
from harness.report.acceptance import show_acceptance
from harness.report.progress import Bars
from harness.subject import wheels
from harness.subject.source import resolve


def acceptance(first: str | None, last: str | None, algorithms: Sequence[str]) -> Exit:
    """Show how much of its draft each release from `first` to `last` accepts; answers that are wrong are findings."""
    for algorithm in algorithms:
        if algorithm not in DRAFTED:
            raise UsageError(f"there is no trained draft for {algorithm!r}: there is one for {', '.join(DRAFTED)}.")
    asked = [algorithm for algorithm in DRAFTED if not algorithms or algorithm in algorithms]
    with Bars(Console(stderr=True)) as bars:
        sources = [resolve(release, bars.note) for release in wheels.releases_between(first, last, bars.note)]
        found = measure_acceptance(sources, asked, bars.note)
    show_acceptance(output(), found)
    return Exit.FINDINGS if any(one.wrong or one.error for one in found) else Exit.PASSED
