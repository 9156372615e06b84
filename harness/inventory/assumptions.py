"""What the emulated NPU assumes of the device: every comment of `harness/npu` that says so.

Such a comment, or a paragraph of a docstring, reads ``Assumption: what. Source: where that is documented. On a device:
how a run there shows whether it holds.``; the last two parts may be missing, and the page then says so.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "npu"
_MARK = "Assumption:"
_PARTS = re.compile(rf"(?={_MARK})")

_PAGE = """# What the emulated NPU assumes of the device

Until a device confirms them, these are assumptions: each is a comment in `harness/npu` that begins with `Assumption:`.
"torch_npu 2.14.0" as a source is the documentation inside of the vendor's wheel of that version
(`fixtures/torch_npu_signatures.json` names it).

Computed by `python -m harness.inventory` from the comments; do not edit, edit the comment.

{assumptions} assumptions, {sourced} with a source.

| where | assumption | source | how a device shows it |
|---|---|---|---|
{rows}
"""


class Assumption(NamedTuple):
    """What is assumed, by the file and the function or class that does; `source` and `shown` may be empty."""

    file: str
    place: str
    what: str
    source: str
    shown: str


def assumptions(folder: Path = FOLDER) -> list[Assumption]:
    """All assumptions of the files of a folder."""
    return [
        _parsed(file.name, place, part)
        for file in sorted(folder.glob("*.py"))
        for place, text in _texts(file.read_text(encoding="utf-8"))
        for part in _PARTS.split(text)[1:]
    ]


def _parsed(file: str, place: str, text: str) -> Assumption:
    rest, _, shown = text.removeprefix(_MARK).partition("On a device:")
    what, _, source = rest.partition("Source:")
    return Assumption(file, place, *(part.strip() for part in (what, source, shown)))


def _texts(code: str) -> Iterator[tuple[str, str]]:
    """The comments and the paragraphs of docstrings that hold an assumption, each with the name of its place."""
    tree = ast.parse(code)
    named = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for line, text in sorted(_comments(code) | _paragraphs([tree, *named]), key=lambda found: found[0]):
        around = (node.name for node in named if node.lineno <= line <= (node.end_lineno or line))
        if _MARK in text:
            yield ".".join(around), text


def _comments(code: str) -> set[tuple[int, str]]:
    """Comments on lines of their own that follow one another, as one, by the last line."""
    found: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            line, text = token.start[0], token.string.removeprefix("#").strip()
            before = "" if text.startswith(_MARK) else found.pop(line - 1, "")
            found[line] = f"{before} {text}".strip()
    return set(found.items())


def _paragraphs(nodes: list[ast.AST]) -> set[tuple[int, str]]:
    found = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            found |= {(node.body[0].lineno, " ".join(part.split())) for part in text.split("\n\n")}
    return found


def page() -> str:
    """The page `docs/assumptions.md`."""
    found = assumptions()
    return _PAGE.format(
        assumptions=len(found),
        sourced=sum(bool(one.source) for one in found),
        rows="\n".join(_row(one) for one in found),
    )


def _row(one: Assumption) -> str:
    where = f"`{one.file}`" + (f" {one.place}" if one.place else "")
    cells = (where, one.what, one.source or "none yet", one.shown or "not said yet")
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
