"""Mutation operators: each turns one place of a function into another text, as a slip of a programmer would.

A library of operators was weighed (mutmut, cosmic-ray): they rewrite files and run a command for each mutant, and know
neither host and device lengths nor a refresh that is left out. These are few, over Python's own syntax tree.
"""

import ast
from collections.abc import Container, Iterator
from typing import NamedTuple

_ARITHMETIC: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.FloorDiv(),
    ast.FloorDiv: ast.Mult(),
    ast.Mod: ast.FloorDiv(),
}
_BOUNDARY: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
}
_COMPARISON: dict[type[ast.cmpop], ast.cmpop] = {
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Lt: ast.GtE(),
    ast.LtE: ast.Gt(),
    ast.Gt: ast.LtE(),
    ast.GtE: ast.Lt(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
#: Names that are taken for one another, with no host on one side and device on the other.
_ALIKE = {
    "block_tables": "block_tables_swa",
    "block_tables_swa": "block_tables",
    "raw_bs": "bs",
    "raw_num_token": "bs",
    "max_len": "max_seq_pages",
    "max_seq_pages": "max_len",
    "k_cache": "v_cache",
    "v_cache": "k_cache",
    "k_buffer": "v_buffer",
    "v_buffer": "k_buffer",
    "head_dim": "v_head_dim",
    "v_head_dim": "head_dim",
    "prefix_lens": "seq_lens",
    "max_bs": "max_num_tokens",
    "max_num_tokens": "max_bs",
    "speculative_num_draft_tokens": "page_size",
    "draft_prefix_lens": "prefix_lens",
    "start_new_pages": "end_new_pages",
    "tp_q_head_num": "tp_k_head_num",
    "tp_k_head_num": "tp_q_head_num",
    "page": "slot",
}
#: The lengths of the host, and those of the device.
_LENGTHS = {
    "seq_lens_cpu": "seq_lens",
    "seq_lens": "seq_lens_cpu",
    "seq_lens_cpu_int": "seq_lens",
    "seq_lens_cpu_list": "seq_lens",
    "nxt_kv_lens_cpu": "new_seq_lens",
}
#: Calls that put something into what is there already.
_REFRESH = {"copy_", "fill_", "zero_", "add_"}
_COPIES = {"clone", "contiguous"}
#: Left alone: what only says that something is wrong.
_SAYING = (ast.Assert, ast.Raise)


class Edit(NamedTuple):
    """`operator` replaces `node` by `text`; `statement` is what it stands in (of a compound, its head)."""

    operator: str
    node: ast.expr | ast.stmt
    text: str
    statement: ast.stmt


def edits(function: ast.FunctionDef, attributes: Container[str]) -> Iterator[Edit]:
    """Every edit of `function`; what is nested in it is part of it.

    A name is taken for another one of the function, an attribute for another of `attributes`, those of its file: what
    does not exist would be noticed at once, by whoever runs the line.
    """
    named = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    named |= {argument.arg for argument in ast.walk(function) if isinstance(argument, ast.arg)}
    known = (named, attributes)
    for statement in _statements(function.body):
        if isinstance(statement, _SAYING) or _speaks(statement):
            continue
        yield from _of_statement(statement)
        for expression in _expressions(statement):
            for node in _below(expression):
                yield from (Edit(name, node, text, statement) for name, text in _of_expression(node, known))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(statement, part, []))
        for handler in getattr(statement, "handlers", []):
            yield from _statements(handler.body)


def _expressions(statement: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement that are not in a statement below it; no annotation, no default."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.value] if statement.value else []
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return []
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [item.context_expr for item in statement.items]
    if isinstance(statement, ast.Assign):
        return [*(target for target in statement.targets if isinstance(target, ast.Subscript)), statement.value]
    return [one for one in ast.iter_child_nodes(statement) if isinstance(one, ast.expr)]


def _below(node: ast.AST) -> Iterator[ast.expr]:
    """The expression and those in it, but for texts: Python 3.11 does not say where the parts of an f-string stand."""
    if isinstance(node, ast.JoinedStr):
        return
    if isinstance(node, ast.expr):
        yield node
    for inner in ast.iter_child_nodes(node):
        yield from _below(inner)


def _speaks(statement: ast.stmt) -> bool:
    """A docstring, or a word to the log."""
    if not isinstance(statement, ast.Expr):
        return False
    if isinstance(statement.value, ast.Constant):
        return True
    return isinstance(statement.value, ast.Call) and ast.unparse(statement.value.func).startswith("logger.")


def _of_statement(statement: ast.stmt) -> Iterator[Edit]:
    def whole(operator: str, text: str) -> Edit:
        return Edit(operator, statement, text, statement)

    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        refreshes = isinstance(called, ast.Attribute) and called.attr in _REFRESH
        yield whole("dropped-copy" if refreshes else "dropped-call", "pass")
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], (ast.Attribute, ast.Subscript)):
        yield whole("dropped-refresh", "pass")
    elif isinstance(statement, ast.AugAssign):
        yield whole("dropped-refresh", "pass")
        if type(statement.op) in _ARITHMETIC:
            other = ast.AugAssign(statement.target, _ARITHMETIC[type(statement.op)], statement.value)
            yield whole("arithmetic", ast.unparse(other))
    elif isinstance(statement, (ast.If, ast.While)):
        yield Edit("negated-condition", statement.test, f"not ({ast.unparse(statement.test)})", statement)


def _of_expression(node: ast.expr, known: tuple[Container[str], Container[str]]) -> Iterator[tuple[str, str]]:
    """Operator and new text of each edit of one expression, in parentheses where it may stand in another one."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        yield "arithmetic", _bracketed(ast.BinOp(node.left, _ARITHMETIC[type(node.op)], node.right))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator, others in (("boundary", _BOUNDARY), ("comparison", _COMPARISON)):
            if type(node.ops[0]) in others:
                yield operator, _bracketed(ast.Compare(node.left, [others[type(node.ops[0])]], node.comparators))
    elif isinstance(node, ast.BoolOp):
        for left_out in range(len(node.values)):
            rest = [value for place, value in enumerate(node.values) if place != left_out]
            yield "dropped-condition", _bracketed(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "negated-condition", _bracketed(node.operand)
    elif isinstance(node, ast.IfExp):
        yield "negated-condition", _bracketed(ast.IfExp(node.test, node.orelse, node.body))
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield "off-by-one", f"({node.value + 1})"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _COPIES:
        yield "dropped-copy", ast.unparse(node.func.value)
    elif isinstance(node, ast.Subscript):
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(part, ast.Slice) and part.upper is not None:
                yield "off-by-one", _with_shorter(node, part)
    elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        name = node.id if isinstance(node, ast.Name) else node.attr
        for operator, table in (("wrong-variable", _ALIKE), ("host-device", _LENGTHS)):
            if name in table and table[name] in known[isinstance(node, ast.Attribute)]:
                yield operator, f"{ast.unparse(node).removesuffix(name)}{table[name]}"


def _bracketed(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _with_shorter(node: ast.Subscript, part: ast.Slice) -> str:
    """The subscript with the slice `part` one shorter at its end."""
    assert part.upper is not None
    whole = part.upper
    part.upper = ast.BinOp(whole, ast.Sub(), ast.Constant(1))
    try:
        return ast.unparse(node)
    finally:
        part.upper = whole
