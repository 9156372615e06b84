"""The report that people read in a browser: one file that needs no network, verdict first."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from harness.bisect.transitions import State, compare
from harness.mutate.study import score
from harness.parity.acceptance_comparison import Comparison as AcceptanceComparison
from harness.parity.acceptance_verdict import Verdict as AcceptanceVerdict
from harness.parity.document import WORST_FIRST, ComparisonDocument
from harness.parity.history import trends
from harness.report.acceptance_plots import position_plot, power_plot, prompt_plot
from harness.report.bisection import MOST_HUNKS, certainty, evidence, first, others, sought, wanted
from harness.report.comparison_plots import error_plot
from harness.report.document import (
    BisectionDocument,
    Document,
    FindingDocument,
    HistoryDocument,
    RunDocument,
    ScanDocument,
    StudyDocument,
)
from harness.report.judgement import GRAVE, ORDER, Kind, judge
from harness.report.mutation import killers_of, percent, title
from harness.report.plots import trend_plot

#: What a reader would do first stands first; of several documents the report carries the gravest verdict.
GRAVITY = ("bad", "unsure", "good")
#: Lists that are longer than this get a box to filter them by.
LONG_LIST = 12


class Verdict(NamedTuple):
    """A verdict as a reader meets it: how grave (`bad`, `unsure`, `good`), in a word, and in a sentence."""

    gravity: str
    word: str
    sentence: str


class Shown(NamedTuple):
    """A finding of a list: the document's own, and the commands that replay it, by sglang."""

    finding: FindingDocument
    replays: Mapping[str, str]


class Row(NamedTuple):
    """One finding along the releases of a scan."""

    fingerprint: str
    states: tuple[State, ...]


def html(documents: Mapping[str, Document]) -> str:
    """The report of `documents`, which are named as their reader knows them (by file name)."""
    verdicts = {name: verdict(document) for name, document in documents.items()}
    gravest = min(verdicts.values(), key=lambda one: GRAVITY.index(one.gravity))
    template = _environment().get_template("report.html.j2")
    return template.render(documents=documents, verdicts=verdicts, gravest=gravest)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("harness.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    environment.globals |= {
        "LONG_LIST": LONG_LIST,
        "MOST_HUNKS": MOST_HUNKS,
        "WORST_FIRST": WORST_FIRST,
        "error_plot": error_plot,
        "by_kind": by_kind,
        "of_run": of_run,
        "of_scan": of_scan,
        "along": along,
        "certainty": certainty,
        "compare": compare,
        "evidence": evidence,
        "first": first,
        "judge": judge,
        "killers_of": killers_of,
        "wanted": wanted,
        "others": others,
        "percent": percent,
        "position_plot": position_plot,
        "power_plot": power_plot,
        "prompt_plot": prompt_plot,
        "sought": sought,
        "title": title,
        "trend_plot": trend_plot,
        "trends": trends,
    }
    return environment


def verdict(document: Document) -> Verdict:
    """What `document` comes to."""
    match document:
        case RunDocument():
            return _run_verdict(document)
        case ScanDocument():
            return _scan_verdict(document)
        case ComparisonDocument():
            return _comparison_verdict(document)
        case AcceptanceComparison():
            return _acceptance_verdict(document)
        case HistoryDocument():
            return _history_verdict(document)
        case BisectionDocument():
            return _bisection_verdict(document)
        case StudyDocument():
            return _study_verdict(document)


def _run_verdict(run: RunDocument) -> Verdict:
    subject = f"sglang {run.name}"
    if run.findings:
        return Verdict("bad", "WRONG", f"{subject}: {_weights(run.findings)}.")
    if run.unknown:
        return Verdict("unsure", "UNKNOWN", f"{subject}: {len(run.unknown)} checks could not judge.")
    return Verdict("good", "RIGHT", f"{subject}: all {len(run.checks)} checks ran and passed.")


def _scan_verdict(scan: ScanDocument) -> Verdict:
    wrong = [run.name for run in scan.runs if any(one.judgement.kind in GRAVE for one in run.findings)]
    lesser = [run.name for run in scan.runs if run.findings and run.name not in wrong]
    unsure = [run.name for run in scan.runs if run.unknown and not run.findings]
    parts = {"users meet faults in": wrong, "lesser findings only in": lesser, "no verdict on": unsure}
    told = "; ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)
    if wrong or lesser:
        return Verdict("bad", "WRONG", f"{told}.")
    if unsure:
        return Verdict("unsure", "UNKNOWN", f"{told}.")
    return Verdict("good", "RIGHT", f"all checks passed on {len(scan.runs)} releases.")


def _comparison_verdict(found: ComparisonDocument) -> Verdict:
    gravity = {"DIFFERENT": "bad", "UNKNOWN": "unsure"}.get(found.verdict, "good")
    counts = ", ".join(f"{found.counts[name]} {name}" for name in WORST_FIRST if found.counts.get(name))
    sides = " beside ".join(f"sglang {side.release} on {side.device}" for side in (found.a, found.b))
    return Verdict(gravity, found.verdict, f"{sides}: {counts or 'no scenario was compared'}.")


def _acceptance_verdict(found: AcceptanceComparison) -> Verdict:
    gravity = {AcceptanceVerdict.EQUIVALENT: "good", AcceptanceVerdict.INCONCLUSIVE: "unsure"}.get(found.verdict, "bad")
    sides = f"{found.candidate.system.where} beside {found.reference.system.where}"
    lengths = "; ".join(
        f"{rung.design} {rung.candidate.length:.3f} beside {rung.reference.length:.3f}" for rung in found.rungs
    )
    return Verdict(gravity, found.verdict.value, f"acceptance of {sides}: {lengths or 'no rung was compared'}.")


def _history_verdict(history: HistoryDocument) -> Verdict:
    found = trends(history.nights)
    stepped = [trend.name for trend in found if trend.steps]
    failed = sum(not night.passed for night in history.nights)
    sentence = (
        f"{len(history.nights)} nights, {failed} of them failed; {len(stepped)} of {len(found)} series have steps."
    )
    return Verdict("unsure" if stepped or failed else "good", "HISTORY", sentence)


def _bisection_verdict(found: BisectionDocument) -> Verdict:
    if not found.answers:
        return Verdict("unsure", "UNKNOWN", "nothing was searched for.")
    told = {f"{sought(answer)}: {first(answer.change)}": None for answer in found.answers}
    count = f"{len(found.answers)} {'finding' if len(found.answers) == 1 else 'findings'}"
    sentence = f"{count}, {'; '.join(told)}."
    if not all(answer.fixed for answer in found.answers):
        return Verdict("bad", "BROKEN", sentence)
    return Verdict("good" if all(answer.exact for answer in found.answers) else "unsure", "FIXED", sentence)


def _study_verdict(found: StudyDocument) -> Verdict:
    study, total = found.study, score(found.study.verdicts)
    missed = [fault.name for fault in study.faults if not fault.as_it_should]
    weak = {
        "killed by nothing": len(study.unexplained),
        "wrongly called equivalent": len(study.refuted),
        "faults of the catalogue not caught": len(missed),
    }
    counts = [
        f"{total.killed} of {total.made} mutants killed" + (f" ({percent(total)})" if total.made else ""),
        *(f"{count} {what}" for what, count in weak.items() if count),
    ]
    word = "GAPS" if any(weak.values()) else "CAUGHT"
    gravity = "bad" if study.refuted or missed else "unsure" if study.unexplained else "good"
    return Verdict(gravity, word, f"sglang {study.release}: {', '.join(counts)}.")


def _weights(findings: Sequence[FindingDocument]) -> str:
    kinds = [finding.judgement.kind for finding in findings]
    weights = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ORDER if kind in kinds)
    return f"{len(kinds)} {'finding' if len(kinds) == 1 else 'findings'} ({weights})"


def by_kind(shown: Iterable[Shown]) -> dict[Kind, list[Shown]]:
    """A list of findings in parts, what hurts most first."""
    parts: dict[Kind, list[Shown]] = {kind: [] for kind in ORDER}
    for one in shown:
        parts[one.finding.judgement.kind].append(one)
    return {kind: part for kind, part in parts.items() if part}


def of_run(run: RunDocument) -> list[Shown]:
    """The findings of a run."""
    return [Shown(finding, {run.name: finding.replay}) for finding in run.findings]


def of_scan(scan: ScanDocument) -> list[Shown]:
    """Each finding of a scan once, as the newest release shows it that has it."""
    found: dict[str, Shown] = {}
    for run in scan.runs:
        for finding in run.findings:
            before = found[finding.fingerprint].replays if finding.fingerprint in found else {}
            found[finding.fingerprint] = Shown(finding, {**before, run.name: finding.replay})
    return list(found.values())


def along(scan: ScanDocument) -> dict[Kind, list[Row]]:
    """Every finding along the releases, what hurts most first."""
    return {
        kind: [Row(one.finding.fingerprint, scan.states[one.finding.fingerprint]) for one in part]
        for kind, part in by_kind(of_scan(scan)).items()
    }


def breakable(fingerprint: str) -> Markup:
    """A fingerprint that a narrow column breaks at its colons."""
    return Markup(":<wbr>").join(fingerprint.split(":"))
