"""A mutation study in a terminal: the score of each function, and what nothing has killed."""

from collections.abc import Sequence
from statistics import median

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.mutate.study import ARMS, Score, Study, Verdict, score, typical
from harness.report.document import SCHEMA, StudyDocument


def study_document(study: Study) -> StudyDocument:
    """The document of a study."""
    targets = dict.fromkeys(verdict.target for verdict in study.verdicts)
    scores = {target: score([one for one in study.verdicts if one.target == target]) for target in targets}
    return StudyDocument(SCHEMA, study, scores)


def show_study(console: Console, study: Study) -> None:
    """Print the score, and each survivor with its diff."""
    if study.verdicts:
        _show_mutants(console, study)
    if study.faults:
        _show_faults(console, study)


def _show_mutants(console: Console, study: Study) -> None:
    table = Table("target", "made", "killed", "equivalent", "not run", "score", "median scenarios", "median s")
    for target in dict.fromkeys(verdict.target for verdict in study.verdicts):
        table.add_row(target, *_row([verdict for verdict in study.verdicts if verdict.target == target]))
    table.add_section()
    table.add_row("all", *_row(study.verdicts))
    console.print(table)
    for verdict in study.unexplained:
        if verdict.status == "unreached":
            continue
        masked = f" (known findings hide it: {verdict.fates['drawn'].message})" if verdict.status == "masked" else ""
        console.print(f"[yellow]{verdict.status}[/] {escape(title(verdict))}{escape(masked)}")
        console.print(escape(verdict.diff), highlight=False)
    unreached = [verdict for verdict in study.unexplained if verdict.status == "unreached"]
    if unreached:
        places = sorted({f"{verdict.target}:{verdict.place}" for verdict in unreached})
        console.print(f"no scenario ran {len(unreached)} mutants, at {', '.join(places)}", soft_wrap=True)
    for verdict in study.refuted:
        killers = ", ".join(killers_of(verdict))
        console.print(f"[red]not equivalent[/]: {escape(title(verdict))} was seen by {killers}; {verdict.argument}")


def _show_faults(console: Console, study: Study) -> None:
    table = Table("fault of the catalogue", "reports", "layer", "caught by")
    for fault in study.faults:
        by = ", ".join(fault.by) if fault.as_it_should else f"[red]not by {fault.check}[/] {', '.join(fault.by)}"
        table.add_row(fault.name, " ".join(fault.reports), fault.layer, by)
    console.print(table)
    if study.detections:
        own, every = (median(getattr(one, name) for one in study.detections) for name in ("own", "scenarios"))
        console.print(
            f"the double count is caught after {own:g} scenarios of its code in the median, {every:g} of all that are "
            f"drawn in turns ({len(study.detections)} seeds)"
        )


def title(verdict: Verdict) -> str:
    """Where, and what has become of what."""
    return f"{verdict.target}:{verdict.place} {verdict.operator}: {verdict.change}"


def killers_of(verdict: Verdict) -> list[str]:
    """The checks that have killed it, in any arm."""
    return sorted({check for fate in verdict.fates.values() if fate.status == "killed" for check in fate.checks})


def percent(found: Score) -> str:
    """The score for a reader."""
    return "" if found.rate is None else f"{100 * found.rate:.1f} %"


def _row(verdicts: Sequence[Verdict]) -> list[str]:
    found = score(verdicts)
    times = next((both for arm in ARMS if (both := typical(verdicts, arm))), None)
    row = [str(found.made), str(found.killed), str(found.equivalent), str(found.unreached), percent(found)]
    return [*row, *((f"{times[0]:g}", f"{times[1]:.1f}") if times else ("", ""))]
