"""The NPU's operators that the source files of an sglang name, found in their syntax and without importing them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from harness.npu.operators import is_operator

_NAMESPACES = ("npu", "atb", "custom")
_KERNELS = "sgl_kernel_npu"


def called(folder: Path) -> dict[str, dict[str, int]]:
    """For each source file, by its path below `folder`, the operators that it names, with the first line of each.

    An operator is ``npu.<name>`` whether it is reached through ``torch_npu`` or ``torch.ops.npu``, with ``.out`` after
    it where that overload is meant; ``atb.<name>`` and ``custom.<name>`` are of other namespaces of ``torch.ops``;
    a kernel of ``sgl_kernel_npu`` has its dotted name.
    """
    found = {}
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "torch_npu" in text or "torch.ops" in text or _KERNELS in text:
            names = _named(ast.parse(text, filename=str(file)))
            if names:
                found[file.relative_to(folder).as_posix()] = names
    return found


def _named(tree: ast.Module) -> dict[str, int]:
    first: dict[str, int] = {}
    for name, line in _references(tree):
        first[name] = min(line, first.get(name, line))
    return dict(sorted(first.items()))


def _references(tree: ast.Module) -> Iterator[tuple[str, int]]:
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield from _operator(f"{node.module}.{alias.name}", node.lineno)
        elif isinstance(node, ast.Attribute) and id(node) not in inner and isinstance(node.ctx, ast.Load):
            yield from _operator(_dotted(node), node.lineno)
        elif isinstance(node, ast.Call) and _dotted(node.func) == "getattr":
            holder, name = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield from _operator(f"{_dotted(holder)}.{name.value}", node.lineno)


def _dotted(node: ast.expr) -> str:
    """The dotted name that an expression is, or nothing."""
    if isinstance(node, ast.Attribute):
        holder = _dotted(node.value)
        return f"{holder}.{node.attr}" if holder else ""
    return node.id if isinstance(node, ast.Name) else ""


def _operator(path: str, line: int) -> Iterator[tuple[str, int]]:
    """The operator that a dotted path names, if it does."""
    package, *parts = path.split(".")
    if package == _KERNELS and len(parts) > 1:
        yield path, line
        return
    if package == "torch" and parts[:1] == ["ops"]:
        parts = parts[1:]
    elif package == "torch_npu":
        parts = parts if parts[:1] == ["atb"] else ["npu", *parts]
    else:
        return
    if len(parts) < 2 or parts[0] not in _NAMESPACES or (package == "torch_npu" and not is_operator(parts[1])):
        return
    overload = ".out" if parts[2:3] == ["out"] else ""
    yield f"{parts[0]}.{parts[1]}{overload}", line
