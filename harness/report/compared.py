"""A comparison of two sides on the terminal: verdict first, then the first divergence, then the numbers."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.parity.document import WORST_FIRST, ComparisonDocument, Errors
from harness.subject.frames import SubjectInfo

COLOURS = {"EQUAL": "green", "WITHIN NOISE": "green", "DIFFERENT": "red", "UNKNOWN": "yellow"}


def show_comparison(console: Console, document: ComparisonDocument) -> None:
    """Print `document` for a reader."""
    counts = ", ".join(f"{document.counts[name]} {name}" for name in WORST_FIRST if document.counts[name])
    console.print(f"[bold {COLOURS[document.verdict]}]{document.verdict}[/]: {counts or 'no scenario was compared'}")
    for name, info in (("a", document.a), ("b", document.b)):
        console.print(f"  {name}: {escape(_side(info))}", soft_wrap=True, highlight=False)
    if document.first is not None:
        first = document.first
        place = f"scenario {first.scenario} ({first.path}), step {first.step}"
        if first.draft_step is not None:
            place += f", draft step {first.draft_step}"
        console.print(f"\nfirst divergence: {escape(place)}", soft_wrap=True, highlight=False)
        console.print(f"  {escape(first.message)}", soft_wrap=True, highlight=False)
    if document.errors is not None:
        console.print(_errors(document.errors, document.ratio))
    console.print(_paths(document))
    for reason, count in document.reasons:
        console.print(f"UNKNOWN {count} times: {escape(reason)}", soft_wrap=True, highlight=False)


def _side(info: SubjectInfo) -> str:
    revision = f" at {info.revision[:12]}" if info.revision else ""
    return (
        f"sglang {info.release}{revision}, {info.kind} on {info.device}, torch {info.versions.get('torch', 'unknown')}"
    )


def _errors(errors: tuple[Errors, Errors], ratio: dict[str, float]) -> Table:
    table = Table("error against float64", "a", "b", "b / a", title_justify="left")
    for name in ("rms", "largest", "largest_relative", "mean_relative"):
        a, b = (getattr(side, name) for side in errors)
        table.add_row(name.replace("_", " "), f"{a:.3g}", f"{b:.3g}", f"{ratio[name]:.3g}")
    table.add_row("within one ULP", *(f"{side.within_one_ulp:.1%}" for side in errors), "")
    table.add_row(
        "noise up to", *("not measured" if side.bound is None else f"{side.bound:.3g}" for side in errors), ""
    )
    return table


def _paths(document: ComparisonDocument) -> Table:
    """How many scenarios of each code path got which verdict."""
    table = Table("code path", *WORST_FIRST)
    for path, counts in document.by_path.items():
        table.add_row(escape(path), *(str(counts[verdict] or "") for verdict in WORST_FIRST))
    return table
