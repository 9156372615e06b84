"""A mutant: one edit of one target, as a patch for a subject and as a diff for a reader."""

import ast
import random
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

from harness.mutate.operators import edits
from harness.mutate.targets import Target
from harness.subject.patch import Definition, Patch


class Mutant(NamedTuple):
    """`operator` has turned `before` into `after` in `line`, a statement (or its head) of `target` on one line.

    `lines` are those of the statement, or of the head of a compound one: where none of them is run, neither is this.
    `within` are the heads of the compound statements around it, the outermost first; `else: ` and the head that it
    belongs to for an alternative.
    """

    target: Target
    operator: str
    line: str
    before: str
    after: str
    lines: range
    within: tuple[str, ...]
    text: str
    original: str

    @property
    def change(self) -> str:
        """What has become of what."""
        return f"{self.before} -> {self.after}"

    @property
    def patch(self) -> Patch:
        """The mutant for a subject."""
        return Patch(self.target.file, self.target.function, self.text)

    @property
    def name(self) -> str:
        """One line: where, and what has become of what."""
        return f"{self.target}:{self.lines.start} {self.operator}: {self.change}"

    def diff(self) -> str:
        """The lines that differ, with two around them."""
        pair = (self.original.splitlines(), self.text.splitlines())
        return "\n".join(list(unified_diff(*pair, lineterm="", n=2))[2:])


def mutants(sglang: Path, target: Target) -> list[Mutant]:
    """Every mutant of `target` that compiles, in the order of its lines."""
    source = (sglang / target.file).read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    definition = Definition(source, target.function)
    attributes = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    around = dict(_around(definition.node.body, lines, ()))
    made: dict[str, Mutant] = {}
    for edit in edits(definition.node, attributes):
        node, head = edit.node, _head(edit.statement)
        if target.words and not any(word in _text(lines, head) for word in target.words):
            continue
        text = _replaced(lines, node, edit.text, definition)
        line = " ".join(_text(lines, head).split())
        before, after = (" ".join(part.split()) for part in (_text(lines, _span(node)), edit.text))
        run, within = range(head[0], head[2] + 1), around[id(edit.statement)]
        original = definition.text(source)
        mutant = Mutant(target, edit.operator, line, before, after, run, within, text, original)
        if text != mutant.original:
            made.setdefault(text, mutant)
    return sorted(made.values(), key=lambda mutant: mutant.lines.start)


def sampled(every: Sequence[Mutant], limit: int | None, seed: int) -> list[Mutant]:
    """At most `limit` of the mutants, drawn by `seed`, in their order."""
    if limit is None or limit >= len(every):
        return list(every)
    return [every[place] for place in sorted(random.Random(seed).sample(range(len(every)), limit))]


def _around(
    body: list[ast.stmt], lines: Sequence[str], heads: tuple[str, ...]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The heads around each statement, by the identity of its node."""
    for statement in body:
        yield id(statement), heads
        head = lines[statement.lineno - 1].strip()
        for part, mark in (("body", ""), ("orelse", "else: "), ("finalbody", "finally: ")):
            yield from _around(getattr(statement, part, []), lines, (*heads, mark + head))
        for handler in getattr(statement, "handlers", []):
            yield from _around(handler.body, lines, (*heads, f"except: {head}"))


_Span = tuple[int, int, int, int]


def _span(node: ast.expr | ast.stmt) -> _Span:
    """First line and column, last line and column; columns count bytes of UTF-8."""
    return node.lineno, node.col_offset, node.end_lineno or 0, node.end_col_offset or 0


def _head(statement: ast.stmt) -> _Span:
    body = getattr(statement, "body", None)
    if not isinstance(body, list):
        return _span(statement)
    head = [one for one in ast.iter_child_nodes(statement) if isinstance(one, (ast.expr, ast.withitem))]
    ends = [one.end_lineno or 0 for item in head for one in ast.walk(item) if isinstance(one, ast.expr)]
    last = max(ends, default=statement.lineno)
    return statement.lineno, statement.col_offset, last, 1 << 20


def _text(lines: Sequence[str], span: _Span) -> str:
    first, start, last, end = span
    part = [line.encode() for line in lines[first - 1 : last]]
    part[-1] = part[-1][:end]
    part[0] = part[0][start:]
    return b"".join(part).decode()


def _replaced(lines: Sequence[str], node: ast.expr | ast.stmt, text: str, definition: Definition) -> str:
    first, start, last, end = _span(node)
    before, after = lines[first - 1].encode()[:start], lines[last - 1].encode()[end:]
    changed = [*lines[definition.first - 1 : first - 1], (before + text.encode() + after).decode()]
    return "".join([*changed, *lines[last : definition.last]])
