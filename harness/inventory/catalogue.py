"""The page `docs/catalogue.md`: how many public reports stand where, and one line for each."""

from collections.abc import Sequence
from textwrap import fill

from harness.errors import UsageError
from harness.inventory.reports import FILE, KINDS, STANDINGS, Expression, Report, problems, reports
from harness.scenario.pinned import pinned_cases

_PAGE = """# Public reports, and what is run for them

Threads of sglang and of its neighbours about speculative decoding, on Ascend and elsewhere, as far as contracts carry
over. What a report is about is said in this project's words; causes are as the threads state them, and not verified.

Computed by `python -m harness.inventory` from `cases/catalogue.json`; do not edit, edit the data.

{count} reports. A report counts once, where it stands first, and in the column of each of its kinds:
{kinds}.

| expressed by | reports | {letters} |
|{rule}
{standings}

{cases} different pinned cases are named below. Of the reports that are expressed, {also} wait for a law, too: their
trigger is run today, and something of it is not.

What waits names the law that sees it, and what is not drawn for it yet. The acceptance table is `harness accept scan`;
what it is said to show is a fault of a release, or was planted (`tests/test_accept_faults.py`).

| id | threads | kinds | about | expressed by, or why not |
|---|---|---|---|---|
{rows}
"""


def page() -> str:
    """The page `docs/catalogue.md`; raises UsageError where the data file names what is not there."""
    known = reports()
    if wrong := problems(known, pinned_cases()):
        raise UsageError(f"{FILE} is wrong: {'; '.join(wrong)}.")
    return _PAGE.format(
        count=len(known),
        kinds=fill("; ".join(f"{letter} {words}" for letter, words in KINDS.items()), 120),
        letters=" | ".join(KINDS),
        rule="---|" * (len(KINDS) + 2),
        standings="\n".join(_counts(standing, known) for standing in STANDINGS),
        also=sum(bool(report.expressed_by and report.waits_for) for report in known),
        cases=len({one.case for report in known for one in report.expressed_by if one.case}),
        rows="\n".join(_row(report) for report in known),
    )


def _counts(standing: str, known: Sequence[Report]) -> str:
    there = [report for report in known if report.standing == standing]
    columns = (sum(kind in report.kinds for report in there) for kind in KINDS)
    return f"| {standing} | {len(there)} | {' | '.join(str(count or '') for count in columns)} |"


def _row(report: Report) -> str:
    means = [_shown(one) for one in report.expressed_by]
    means += [f"waits for `{one.law}`" + (f" with {one.given}" if one.given else "") for one in report.waits_for]
    told = report.why_not or "; ".join(means) + (f". Unseen: {report.unseen}" if report.unseen else "")
    threads = ", ".join(map(_link, report.threads)) or "none named"
    return f"| {report.id} | {threads} | {' '.join(report.kinds)} | {report.about} | {told} |"


def _shown(one: Expression) -> str:
    if one.case:
        return f"[{one.case}](../cases/regressions/{one.case}.json)"
    if one.accepts:
        return f"`harness accept scan`, {one.accepts}"
    return f"`{one.check}` on drawn `{one.cell}`"


def _link(thread: str) -> str:
    """A thread with its address; GitHub leads from an issue's address to a pull request of that number."""
    repository, number = thread.split("#")
    full = "sgl-project/sglang" if repository == "sglang" else repository
    return f"[{thread}](https://github.com/{full}/issues/{number})"
