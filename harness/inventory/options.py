"""The server options and the environment switches of an sglang, found in its syntax and without importing it.

An option is a field of `ServerArgs`; from 0.5.20 on the fields are those of the classes of `arg_groups` that have a
`_NS_PATH`. A switch is an entry of the table `Envs` in `environ.py`, or a variable that a file reads by its name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from harness.errors import CannotJudge

_READERS = ("get_bool_env_var", "get_int_env_var", "getenv", "os.getenv", "os.environ.get", "environ.get")
_MAPPINGS = ("os.environ", "environ")
REQUIRED = "required"
"""The default of an option that has none."""


def options(root: Path) -> dict[str, str]:
    """The server options of the sglang whose `sglang/srt` is `root`, and the default of each as it is written.

    Raises:
        CannotJudge: they are not where this function looks.
    """
    files = [root / "server_args.py", *sorted((root / "arg_groups").rglob("*.py"))]
    classes = [node for file in files for node in _tree(file).body if isinstance(node, ast.ClassDef)]
    holders = [node for node in classes if node.name == "ServerArgs" or "_NS_PATH" in _assigned(node)]
    found = {
        field.target.id: REQUIRED if field.value is None else ast.unparse(field.value)
        for holder in holders
        for field in holder.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    return _some(found, root, "server options")


def switches(root: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """The environment switches of the same sglang: the table, and what the files that `patterns` match read beside it.

    A switch has its default, or the way in which it is read, as it is written.

    Raises:
        CannotJudge: the table is not where this function looks.
    """
    holders = [node for node in _tree(root / "environ.py").body if isinstance(node, ast.ClassDef)]
    table = {name: value for node in holders if node.name == "Envs" for name, value in _assigned(node).items()}
    read = {
        name: written
        for file in sorted({file for pattern in patterns for file in root.glob(pattern)})
        for name, written in _read(_tree(file))
    }
    return read | _some(table, root, "environment switches")


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), filename=str(file)) if file.is_file() else ast.Module([], [])


def _assigned(holder: ast.ClassDef) -> dict[str, str]:
    """The names that the body of a class assigns to, and what, as it is written."""
    return {
        name.id: ast.unparse(node.value)
        for node in holder.body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }


def _some(found: dict[str, str], root: Path, what: str) -> dict[str, str]:
    if not found:
        raise CannotJudge(f"no {what} were found below {root}: say in harness/inventory/options.py where they are now.")
    return found


def _read(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The environment variables that a file reads by a name that is written out, each with how it does."""
    for node in ast.walk(tree):
        name: ast.expr | None = None
        if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _READERS:
            name = node.args[0]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            name = node.slice if ast.unparse(node.value) in _MAPPINGS else None
        elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) in _MAPPINGS:
            name = node.left
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value, ast.unparse(node)
