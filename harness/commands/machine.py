"""What this machine can run, and running it here."""

import os
from collections.abc import Sequence
from typing import NoReturn

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.commands.console import output
from harness.doctor import Item, examine, subjects
from harness.errors import Exit, UsageError
from harness.report.progress import Bars
from harness.subject.emulation import environment, require_installed
from harness.subject.source import resolve


def emulate(spec: str | None, command: Sequence[str]) -> NoReturn:
    """Become `command`, in whose Python processes `import torch` emulates an NPU and `import sglang` finds `spec`."""
    require_installed()
    with Bars(Console(stderr=True)) as bars:
        source = resolve(spec, bars.note)
    try:
        os.execvpe(command[0], list(command), environment(source, emulated=True))
    except OSError as error:
        raise UsageError(f"{command[0]} cannot be run: {error.strerror}.") from None


def doctor() -> Exit:
    """Show what is here and which subjects it makes possible; status 3 where there is none."""
    console = output()
    items = examine()
    possible = subjects(items)
    for title, rows in (("this machine", items), ("subjects", possible)):
        console.print(_table(title, rows))
    return Exit.PASSED if any(item.present for item in possible) else Exit.UNKNOWN


def _table(title: str, items: Sequence[Item]) -> Table:
    table = Table(title, "", "found")
    for item in items:
        table.add_row(item.name, "[green]yes[/]" if item.present else "[yellow]no[/]", escape(item.detail))
    return table
