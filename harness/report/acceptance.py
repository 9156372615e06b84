"""The table of acceptance lengths, one row for each sglang."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.campaign.acceptance import Accepted


def show_acceptance(console: Console, found: Sequence[Accepted]) -> None:
    """One row per release, one column per algorithm and executor; refusals and errors in words below."""
    columns = list(dict.fromkeys((one.algorithm, one.executor) for one in found))
    table = Table("sglang", *(" ".join(column) for column in columns))
    for release in dict.fromkeys(one.release for one in found):
        own = {(one.algorithm, one.executor): one for one in found if one.release == release}
        table.add_row(escape(release), *(_cell(own[column]) if column in own else "" for column in columns))
    console.print(table)
    console.print("Tokens of a verify, bonus included (ratio of sums); wrong: answers that are not the target's own.")
    for one in found:
        for what, words in (("refuses", one.refusal), ("ends", one.error)):
            if words:
                line = f"{one.release} {one.algorithm} {one.executor} {what}: {words}"
                console.print(escape(line), highlight=False, soft_wrap=True)


def _cell(one: Accepted) -> str:
    length = "none" if one.length is None else f"{one.length:.2f}"
    notes = [f"{one.wrong} wrong"] if one.wrong else []
    notes += ["gate lifted"] if one.refusal else []
    notes += ["ends"] if one.error else []
    text = f"{length} ({', '.join(notes)})" if notes else length
    return f"[bold red]{text}[/]" if one.wrong or one.error else text
