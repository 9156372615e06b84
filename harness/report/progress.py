"""How far a long command is: bars in a terminal, a plain line per stage elsewhere. All of it goes to stderr."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """One bar per task (a release, or the check of one sglang); a context manager.

    Without a terminal a stage has a line when it begins, and `lines` more as it goes on.
    """

    def __init__(self, console: Console, lines: int = 0) -> None:
        self.console = console
        self.lines = lines
        columns = (TextColumn("{task.fields[title]}"), BarColumn(), TextColumn("{task.fields[stage]}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)
        self.tasks: dict[str, TaskID] = {}
        self.printed: dict[str, tuple[str, int]] = {}

    def advance(self, title: str, stage: str, done: int, total: int) -> None:
        """Task `title` has done `done` of `total` steps and is at `stage`."""
        if self.console.is_terminal:
            if title not in self.tasks:
                self.tasks[title] = self.progress.add_task("", title=title, stage=stage, total=total)
            self.progress.update(self.tasks[title], completed=done, total=total, stage=stage)
        else:
            part = (stage, done * self.lines // max(total, 1))
            if self.printed.get(title) != part:
                self.printed[title] = part
                self.console.print(f"{title}: {stage} ({done}/{total})", highlight=False, soft_wrap=True)

    def note(self, message: str) -> None:
        """A line of its own: a download, say."""
        self.console.print(message, highlight=False, soft_wrap=True, markup=False)

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
