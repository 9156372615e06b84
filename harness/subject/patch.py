"""A patch: one function of sglang with another text, in the memory of one worker and never on disk."""

import ast
import sys
import types
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec

from harness.errors import CannotJudge


class Patch(msgspec.Struct, frozen=True):
    """`function` (`Class.method`, or a name) of `file` (a path from the folder of sglang's package on) with `text`.

    `text` is the whole definition with its decorators, indented as it is in the file.
    """

    file: str
    function: str
    text: str


#: Python 3.11 counts how deep a tree goes for all threads together, and raises SystemError where two parse at a time
#: (python/cpython#106905).
_PARSING = Lock()


class Definition:
    """Where a function stands in a text: `node`, and `first` and `last`, its lines from 1, decorators included."""

    def __init__(self, source: str, function: str) -> None:
        """Raises CannotJudge where `source` has no such function."""
        with _PARSING:
            node: ast.AST = ast.parse(source)
        for name in function.split("."):
            inner = getattr(node, "body", [])
            named = (one for one in inner if isinstance(one, (ast.ClassDef, ast.FunctionDef)) and one.name == name)
            found = next(named, None)
            if found is None:
                raise CannotJudge(f"there is no function {function} in this file.")
            node = found
        if not isinstance(node, ast.FunctionDef):
            raise CannotJudge(f"{function} is no function.")
        self.node = node
        self.first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
        self.last = node.end_lineno or node.lineno

    def text(self, source: str) -> str:
        """The lines of the definition."""
        return "".join(source.splitlines(keepends=True)[self.first - 1 : self.last])


def apply(patch: Patch) -> None:
    """Give the function the patched code, under all names that it has; its closure, defaults and decorators stay.

    Raises CannotJudge where sglang has no such function, or where the text does not compile to one like it.
    """
    module = import_module(_module_name(patch))
    path = str(module.__file__)
    first = _first_line(path, patch.function)
    *classes, name = patch.function.split(".")
    # Line numbers stay those of the file, so that a traceback names the right place.
    opening = "from __future__ import annotations;" if _postponed(module) else ""
    lines = [opening, *[""] * (first - len(classes) - 2)]
    lines += [f"{' ' * 4 * depth}class {one}:" for depth, one in enumerate(classes)]
    code: Any = compile("\n".join(lines) + "\n" + patch.text, path, "exec", dont_inherit=True)
    for one in (*classes, name):
        code = next(c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == one)
    function = _function(module, patch.function)
    if function.__code__.co_freevars != code.co_freevars:
        raise CannotJudge(f"the patched {patch.function} takes other variables from around it.")
    function.__code__ = code


def foresee(patch: Patch) -> None:
    """Read the file that `patch` is for, once for all processes that are forked from this one; errors are theirs."""
    module = sys.modules.get(_module_name(patch))
    with suppress(CannotJudge, OSError):
        if module is not None:
            _first_line(str(module.__file__), patch.function)


def _module_name(patch: Patch) -> str:
    return patch.file.removesuffix(".py").replace("/", ".")


@cache
def _first_line(path: str, function: str) -> int:
    return Definition(Path(path).read_text(encoding="utf-8"), function).first


def _postponed(module: types.ModuleType) -> bool:
    return hasattr(module, "annotations")


def _function(module: types.ModuleType, name: str) -> types.FunctionType:
    """The function as it was defined, below its decorators."""
    found: Any = module
    for part in name.split("."):
        found = vars(found).get(part)
    found = getattr(found, "__func__", found)  # a static method or a class method
    while not isinstance(found, types.FunctionType) or hasattr(found, "__wrapped__"):
        if not hasattr(found, "__wrapped__"):
            raise CannotJudge(f"{name} is wrapped so that its function is not to be found.")
        found = found.__wrapped__
    return found
