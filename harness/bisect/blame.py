"""The likely hunk: what has changed between two sglangs in the functions that a scenario runs through."""

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from harness.bisect.answer import Hunk
from harness.bisect.decision import Subject
from harness.bisect.verdict import check_of
from harness.campaign.trial import Trial
from harness.errors import NoSubject
from harness.scenario.case import Case
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

CONTEXT = 2
#: Lines of one hunk; of a longer one, as of a new function, what names the field is kept.
MOST_LINES = 30
#: What sglang calls what sessions and graphs are judged by, where findings have a name of their own for it.
_SYNONYMS = {"kv_lengths": "seq_lens_cpu", "host_lengths": "seq_lens_cpu", "tokens": "accept_lens"}

Executed = dict[str, tuple[int, ...]]


class _Function(NamedTuple):
    """A function or method: its first line in its file, its lines, and what it does, whatever it looks like.

    `body` is the first line that a call runs: those before it run where the function is defined. `governed` are the
    assignments right below each condition, by its lines in the file.
    """

    start: int
    body: int
    lines: list[str]
    meaning: str
    governed: dict[int, list[str]]


class Blame(NamedTuple):
    """The hunks that ran, the likeliest first, and how many functions they are of."""

    hunks: tuple[Hunk, ...] = ()
    changed: int = 0


class Tracers(ExitStack):
    """Subjects that are traced, one for each sglang and kept for the next case; a context manager.

    What is made once and kept warm, such as a backend, runs its constructor for the first of the cases that use it.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject = subject
        self.supervisors: dict[str, Supervisor] = {}

    def blame(self, case: Case, older: Source, newer: Source) -> Blame:
        """What of their difference the case runs through, with what its check compares the scenario with.

        Nothing where one of them cannot be traced.
        """
        try:
            before, after = (self._executed(source, case) for source in (older, newer))
        except NoSubject:
            return Blame()
        return between(Path(older.path), before, Path(newer.path), after, _names(case))

    def _executed(self, source: Source, case: Case) -> Executed:
        traces = [self._supervisor(source).trace(one) for one in Trial.needed(check_of(case), case.scenario)]
        files = {file for trace in traces for file in trace}
        return {file: tuple({line for trace in traces for line in trace.get(file, ())}) for file in files}

    def _supervisor(self, source: Source) -> Supervisor:
        if source.path not in self.supervisors:
            supervisor = Supervisor(source, self.subject.device, self.subject.through)
            self.supervisors[source.path] = self.enter_context(supervisor)
        return self.supervisors[source.path]


def between(older: Path, before: Executed, newer: Path, after: Executed, names: Sequence[str]) -> Blame:
    """The changes below two folders in whose functions a line ran; `names` are from the likeliest to the least.

    Of hunks that come equally near to the names, those in files that have the first name somewhere come first.
    """
    hunks = []
    functions = 0
    naming: set[str] = set()
    for file in sorted({*before, *after}):
        old, new = _functions(older / file), _functions(newer / file)
        if names and any(names[0] in line for function in (*old.values(), *new.values()) for line in function.lines):
            naming.add(file)
        for name in dict.fromkeys([*old, *new]):
            nothing = _Function(1, 1, [], "", {})
            was, now = old.get(name, nothing), new.get(name, nothing)
            if was.meaning == now.meaning:
                continue
            found = [
                hunk
                for hunk in _hunks(file, name, was, now, before.get(file, ()), after.get(file, ()), names)
                if hunk.ran
            ]
            hunks += found
            functions += bool(found)
    return Blame(
        tuple(sorted(hunks, key=lambda hunk: (-hunk.relevance, hunk.file not in naming, -hunk.ran))), functions
    )


def _names(case: Case) -> list[str]:
    """What the wrong field may be called, the exact name first: `seq_lens_cpu_int`, `seq_lens_cpu`, `seq_lens`."""
    _, _, rest = case.fingerprint.partition(":")
    field = rest.split(":")[0].split("-")[0]
    names = []
    for name in dict.fromkeys(filter(None, (field, _SYNONYMS.get(field)))):
        words = name.split("_")
        names += ["_".join(words[:count]) for count in range(len(words), 1, -1)] or [name]
    return list(dict.fromkeys(names))


def _functions(file: Path) -> dict[str, _Function]:
    """The functions and methods of a file by their qualified names; those inside another are part of it."""
    try:
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return {}
    lines = text.splitlines()
    return {
        name: _Function(
            node.lineno, node.body[0].lineno, lines[node.lineno - 1 : node.end_lineno], ast.dump(node), _governed(node)
        )
        for name, node in _defined(tree.body, "")
    }


def _governed(function: ast.AST) -> dict[int, list[str]]:
    return {
        line: [ast.unparse(one) for one in node.body if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign)]
        for node in ast.walk(function)
        if isinstance(node, ast.If)
        for line in range(node.lineno, node.body[0].lineno)
    }


def _defined(body: list[ast.stmt], scope: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{scope}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _defined(node.body, f"{scope}{node.name}.")


class _Line(NamedTuple):
    """A line of a hunk: how it is shown, its place in the newer file (of one that went, where it was), whether it ran,
    and how near it comes to the field (0 for not at all)."""

    shown: str
    place: int
    ran: bool = False
    relevance: int = 0


def _hunks(
    file: str,
    name: str,
    was: _Function,
    now: _Function,
    before: Collection[int],
    after: Collection[int],
    names: Collection[str],
) -> Iterator[Hunk]:
    """The hunks of one function, each with `CONTEXT` lines around it."""
    for group in SequenceMatcher(None, was.lines, now.lines, autojunk=False).get_grouped_opcodes(CONTEXT):
        lines: list[_Line] = []
        for kind, first, last, start, end in group:
            if kind == "equal":
                lines += [_Line(f" {now.lines[place]}", now.start + place) for place in range(start, end)]
                continue
            gone = _changed("-", was, range(first, last), before, names)
            lines += [line._replace(place=now.start + start) for line in gone]
            lines += _changed("+", now, range(start, end), after, names)
        relevance = max(line.relevance for line in lines)
        shown = _shortened(lines, relevance)
        texts = tuple(line.shown for line in shown)
        yield Hunk(file, name, shown[0].place, texts, sum(line.ran for line in lines), relevance)


def _changed(
    sign: str, function: _Function, places: range, executed: Collection[int], names: Collection[str]
) -> list[_Line]:
    found = []
    for place in places:
        text = function.lines[place]
        line = function.start + place
        ran = line >= function.body and line in executed
        # A condition decides over what is assigned below it, whether that ran or not: a lost guard is such a line.
        decided = (text, *function.governed.get(line, ()))
        nearest = max(_relevance(one, names) for one in decided) if ran else 0
        found.append(_Line(f"{sign}{text}", line, ran, nearest))
    return found


def _relevance(text: str, names: Collection[str]) -> int:
    """How near a line comes to the field: the more exact the name, and most of all where it is assigned to."""
    for rank, name in enumerate(names):
        if re.search(rf"{name}\b[^=]*[^=!<>]=(?!=)", text):
            return 2 * (len(names) - rank)
        if re.search(rf"{name}\b", text):
            return 2 * (len(names) - rank) - 1
    return 0


def _shortened(lines: list[_Line], relevance: int) -> list[_Line]:
    """The lines, or of many of them those around the first three that come nearest, with a mark for each gap."""
    if len(lines) <= MOST_LINES:
        return lines
    best = [place for place, line in enumerate(lines) if line.relevance == relevance and line.ran][:3] or [0]
    kept = sorted({near for place in best for near in range(place - 3, place + 4) if 0 <= near < len(lines)})
    shown: list[_Line] = []
    for before, place in pairwise([kept[0] - 1, *kept]):
        shown += [] if place == before + 1 else [_Line("…", lines[place].place)]
        shown.append(lines[place])
    return shown
