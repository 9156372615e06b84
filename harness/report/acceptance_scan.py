"""What releases accept, as a table of releases: in a terminal, and as Markdown for a document."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.campaign.accept_tiny import Cell
from harness.parity.acceptance_counts import of_replies
from harness.parity.acceptance_verdict import Verdict
from harness.report.acceptance import coloured, say

ABOUT = "Tokens of a verify, bonus included (ratio of sums), beside those of plain torch"


def show_scan(console: Console, cells: Sequence[Cell]) -> None:
    """One row per release, one column per algorithm and executor; refusals, errors and wrong tokens in words below."""
    table = Table("sglang", *_columns(cells))
    for release, own in _rows(cells):
        table.add_row(escape(release), *(_coloured(cell) for cell in own))
    console.print(table)
    say(console, f"{ABOUT}. {_played(cells)}.")
    for sentence in _sentences(cells):
        say(console, sentence)


def scan_markdown(cells: Sequence[Cell]) -> str:
    """The same table and sentences, for a document."""
    columns = _columns(cells)
    lines = [f"| sglang | {' | '.join(columns)} |", "|---|" + "---|" * len(columns)]
    lines += [f"| {release} | {' | '.join(map(_words, own))} |" for release, own in _rows(cells)]
    return "\n".join([*lines, "", f"{ABOUT}. {_played(cells)}.", "", *(f"- {one}" for one in _sentences(cells)), ""])


def _columns(cells: Sequence[Cell]) -> list[str]:
    return list(dict.fromkeys(" ".join(cell.name) for cell in cells))


def _rows(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """Cells by release; each release has all columns, in the same order."""
    rows: dict[str, list[Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.run.header.system.release, []).append(cell)
    return list(rows.items())


def _played(cells: Sequence[Cell]) -> str:
    """When it was played: what is kept of an earlier scan has its own date."""
    dates = sorted({cell.run.header.date for cell in cells})
    return f"Played on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}"


def _length(cell: Cell) -> str:
    verified = [number for number, reply in cell.run.replies.items() if reply.verifies]
    block = cell.run.header.setting.draft_tokens
    return f"{of_replies(cell.run.replies, verified, block).length:.2f}" if verified else ""


def _notes(cell: Cell) -> list[str]:
    notes = ["gate lifted"] if cell.played.refusal else []
    notes += ["ENDS"] if cell.played.error else []
    return notes + (["UNKNOWN"] if cell.played.unknown else [])


def _verdicts(cell: Cell) -> list[Verdict]:
    """The verdict, and that of the lengths beside it where tokens are wrong, too."""
    rungs = [rung.verdict for rung in cell.comparison.rungs] if cell.comparison else []
    said = [cell.verdict] if cell.verdict else []
    return said + [one for one in rungs if one in (Verdict.REGRESSED, Verdict.IMPROVED) and one not in said]


def _words(cell: Cell) -> str:
    return f"{_length(cell)} {', '.join([one.value for one in _verdicts(cell)] + _notes(cell))}".strip()


def _coloured(cell: Cell) -> str:
    notes = [f"[bold red]{note}[/]" if note == "ENDS" else note for note in _notes(cell)]
    return f"{_length(cell)} {', '.join([coloured(one) for one in _verdicts(cell)] + notes)}".strip()


def _sentences(cells: Sequence[Cell]) -> list[str]:
    """What is wrong, or not known, of each cell; the same words of several cells once."""
    said: dict[str, list[str]] = {}
    for cell in cells:
        told = [f"{cell.exactness.told[0]}"] if cell.exactness.wrong else []
        refused = [f"refuses: {cell.played.refusal}"] if cell.played.refusal else []
        ended = [f"ends: {cell.played.error}"] if cell.played.error else []
        unknown = [f"could not be asked: {cell.played.unknown}"] if cell.played.unknown else []
        for words in (*refused, *told, *ended, *unknown):
            said.setdefault(words, []).append(str(cell.run.path))
    return [f"{'; '.join(names)} {words}" for words, names in said.items()]
