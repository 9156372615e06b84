"""The public reports of `cases/catalogue.json`: what can be run for each, what it waits for, or why there is nothing.

A report is expressed by a pinned case, by a check on what is drawn for a cell of the strategies or for a server of the
sessions, or by a cell of the acceptance table. What these do not draw waits: for what the law that sees it is held to.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import msgspec

from harness.checks.registry import CHECKS
from harness.errors import UsageError
from harness.models.store import TRAINED
from harness.scenario.case import Case
from harness.scenario.metadata import Executor
from harness.scenario.pinned import FOLDER
from harness.scenario.session_strategies import servers
from harness.scenario.strategies import cells
from harness.scenario.validity import MODES
from harness.scenario.verify_strategies import verify_cells

FILE = FOLDER.parent / "catalogue.json"

Kind = Literal["M", "K", "G", "S", "A", "L", "R", "X", "T"]
#: What a report asks for, by its letter.
KINDS: dict[Kind, str] = {
    "M": "metadata",
    "K": "KV bounds",
    "G": "graph replay",
    "S": "staleness and aliasing",
    "A": "acceptance parity",
    "L": "allocator accounting",
    "R": "verify rule",
    "X": "across ranks or processes",
    "T": "range of an integer type",
}
#: Where a report stands, from what can be run today to what cannot be.
STANDINGS = (
    "a pinned case",
    "a check on what is drawn",
    "the acceptance table",
    "waits for a law",
    "cannot be expressed",
)


class Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What can be run: the pinned `case`, `check` on what is drawn for `cell`, or `accepts` of the acceptance table.

    A cell of the metadata is "EAGLE draft_decode graph mha", and one of the sessions "session EAGLE graph mha"; one of
    `harness accept scan` is "EAGLE graph".
    """

    case: str = ""
    check: str = ""
    cell: str = ""
    accepts: str = ""


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The law that will see the report, `given` what it takes beside the usual."""

    law: str
    given: str = ""


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One report: its id, the public threads (`sglang#31739`; of others `owner/name#number`), and what became of it.

    `about` is what it is about, in a clause. Either something expresses it, or it waits, or `why_not` is one sentence.
    `unseen` is a sentence on the part of what is expressed that nothing judges.
    """

    id: str
    threads: tuple[str, ...]
    kinds: tuple[Kind, ...]
    about: str
    expressed_by: tuple[Expression, ...] = ()
    waits_for: tuple[Wait, ...] = ()
    why_not: str = ""
    unseen: str = ""

    @property
    def standing(self) -> str:
        """The first of `STANDINGS` that holds."""
        means = (any(one.case for one in self.expressed_by), any(one.check for one in self.expressed_by))
        return STANDINGS[[*means, bool(self.expressed_by), bool(self.waits_for), True].index(True)]


def reports(path: Path = FILE) -> tuple[Report, ...]:
    """Every report of the data file; raises UsageError for a file that is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=tuple[Report, ...])
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no catalogue of reports: {error}.") from error


def problems(known: Sequence[Report], pinned: Mapping[str, Case]) -> list[str]:
    """What is wrong with a catalogue, one sentence each; `pinned` are the cases that there are, by name."""
    found = [sentence for report in known for sentence in _of_one(report, pinned)]
    ids = [report.id for report in known]
    found += [f"{one} stands {ids.count(one)} times" for one in sorted(set(ids)) if ids.count(one) > 1]
    named = {one.case for report in known for one in report.expressed_by}
    sentinels = {name for name, case in pinned.items() if not case.fingerprint}
    return found + [f"the sentinel {name} belongs to no report" for name in sorted(sentinels - named)]


def _of_one(report: Report, pinned: Mapping[str, Case]) -> list[str]:
    means = bool(report.expressed_by or report.waits_for)
    found = [] if means != bool(report.why_not) else ["must be expressed or wait for a law, or else say why not"]
    found += (
        ["has nothing that expresses it, and so no unseen part"] if report.unseen and not report.expressed_by else []
    )
    for one in report.expressed_by:
        found += _of_expression(one, report.threads, pinned)
    found += [f"there is no law {one.law}" for one in report.waits_for if one.law not in CHECKS]
    return [f"{report.id}: {sentence}" for sentence in found]


def _of_expression(one: Expression, threads: Collection[str], pinned: Mapping[str, Case]) -> list[str]:
    if sum(map(bool, (one.case, one.check and one.cell, one.accepts))) != 1:
        return [f"{one} is neither a case, nor a check with its cell, nor a cell of the acceptance table"]
    if one.accepts:
        return [] if one.accepts in accept_cells() else [f"there is no cell {one.accepts} of the acceptance table"]
    if one.case and one.case not in pinned:
        return [f"there is no pinned case {one.case}"]
    if one.case:
        case = pinned[one.case]
        strange = not case.fingerprint and case.reports and threads and not set(threads) & set(case.reports)
        return [f"the sentinel {one.case} names other reports: {', '.join(case.reports)}"] if strange else []
    found = [] if one.check in CHECKS else [f"there is no check {one.check}"]
    return found + ([] if one.cell in cell_names() else [f"there is no cell {one.cell}"])


def accept_cells() -> set[str]:
    """The cells that `harness accept scan` has of each release: an algorithm that has a trained draft, an executor."""
    trained = (path.name.partition(".")[0] for path in TRAINED.glob("*.accept.jsonl"))
    return {f"{algorithm} {executor}" for algorithm, executor in product(trained, get_args(Executor))}


def cell_names() -> set[str]:
    """The cells of the metadata and of verifies, and the servers of sessions without what their rows vary."""
    everything = tuple(MODES)
    drawn = (cells(everything), verify_cells(everything), servers(everything, (), 1))
    return {str(one) for some in drawn for one in some}
