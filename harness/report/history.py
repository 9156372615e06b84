"""Nights made of the results of a run, and what their history shows."""

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.parity.history import SCHEMA, Night, Trend, trends
from harness.report.document import Result

SPARKS = "▁▂▃▄▅▆▇█"
#: Nights that fit into a table's sparkline.
SPARKLINE = 30


def night(subject: str, results: Sequence[Result], when: datetime) -> Night:
    """One night of `subject` with all its results; it has passed where all of them have."""
    values: dict[str, float] = {}
    for result in results:
        values |= result.measured
    return Night(SCHEMA, when, subject, all(result.passed for result in results), values)


def show_history(console: Console, nights: Sequence[Night]) -> None:
    """One row for each series: its last nights, the newest value beside the baseline, and its steps."""
    table = Table("subject", "series", "nights", f"last {SPARKLINE}", "newest", "baseline", "steps")
    for trend in trends(nights):
        newest = trend.nights[-1]
        table.add_row(
            escape(trend.subject),
            escape(trend.name),
            str(len(trend.nights)),
            _sparkline(trend.values[-SPARKLINE:]),
            f"{trend.values[-1]:.4g}" + ("" if newest.passed else " [red](failed)[/]"),
            "none" if trend.baseline is None else f"{trend.baseline:.4g}",
            "\n".join(_steps(trend)),
        )
    console.print(table)
    console.print(
        "The baseline is the mean of the nights that passed since the last step; a failed night is never in it."
    )


def _steps(trend: Trend) -> list[str]:
    return [
        f"{trend.nights[step.night].when:%Y-%m-%d}: {step.before:.4g} → {step.after:.4g} (p = {step.p:.2g})"
        for step in trend.steps
    ]


def _sparkline(values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    if low == high:
        return SPARKS[0] * len(values)
    return "".join(SPARKS[int((value - low) / (high - low) * (len(SPARKS) - 1))] for value in values)
