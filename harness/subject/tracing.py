"""Which lines of an sglang run while a scenario is observed: for whoever looks for the change behind an answer."""

import os
import sys
import threading
from collections import defaultdict
from types import FrameType, TracebackType
from typing import Any, Self


class Tracer:
    """Notes every line that runs in files below `folder`, in this thread and in those it starts; a context manager."""

    def __init__(self, folder: str) -> None:
        self.prefix = os.path.join(os.path.realpath(folder), "")
        self.names: dict[str, str] = {}
        self.lines: defaultdict[str, set[int]] = defaultdict(set)

    @property
    def executed(self) -> dict[str, tuple[int, ...]]:
        """The lines of each file, by its path below the folder."""
        return {name: tuple(sorted(lines)) for name, lines in sorted(self.lines.items())}

    def __enter__(self) -> Self:
        threading.settrace(self._called)
        sys.settrace(self._called)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if file not in self.names:
            path = os.path.realpath(file)
            self.names[file] = path.removeprefix(self.prefix) if path.startswith(self.prefix) else ""
        name = self.names[file]
        if not name:
            return None
        lines = self.lines[name]

        def ran(frame: FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return ran

        return ran
