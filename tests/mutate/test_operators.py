"""Mutation operators: what each makes of a small function, and what is left alone."""

import ast
import textwrap

import pytest

from harness.mutate.operators import edits


def made(body: str, arguments: str = "", attributes: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """The new texts by operator."""
    source = f"def function({arguments}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    found: dict[str, list[str]] = {}
    for edit in edits(function, attributes):
        found.setdefault(edit.operator, []).append(edit.text)
    return found


@pytest.mark.parametrize(
    ("body", "operator", "texts"),
    [
        ("return a + b", "arithmetic", ["(a - b)"]),
        ("return a // b", "arithmetic", ["(a * b)"]),
        ("a += b", "arithmetic", ["a -= b"]),
        ("return a < b", "boundary", ["(a <= b)"]),
        ("return a < b", "comparison", ["(a >= b)"]),
        ("return a is None", "comparison", ["(a is not None)"]),
        ("return a and b and c", "dropped-condition", ["(b and c)", "(a and c)", "(a and b)"]),
        ("return not a", "negated-condition", ["(a)"]),
        ("return a if b else c", "negated-condition", ["(c if b else a)"]),
        ("if a:\n    b()", "negated-condition", ["not (a)"]),
        ("return a[:b]", "off-by-one", ["a[:b - 1]"]),
        ("return a + 1", "off-by-one", ["(2)"]),
        ("a.copy_(b)", "dropped-copy", ["pass"]),
        ("return a.clone()", "dropped-copy", ["a"]),
        ("self.a = b", "dropped-refresh", ["pass"]),
        ("a += b", "dropped-refresh", ["pass"]),
        ("a(b)", "dropped-call", ["pass"]),
    ],
)
def test_an_operator_makes_its_mutants(body: str, operator: str, texts: list[str]) -> None:
    assert made(body)[operator] == texts


def test_host_and_device_lengths_are_taken_for_one_another_where_both_are_there() -> None:
    assert made("return seq_lens_cpu", "seq_lens, seq_lens_cpu") == {"host-device": ["seq_lens"]}
    assert made("return batch.seq_lens", attributes=("seq_lens_cpu",)) == {"host-device": ["batch.seq_lens_cpu"]}


def test_a_variable_is_not_taken_for_one_that_the_function_does_not_have() -> None:
    assert made("return max_len", "max_len") == {}
    assert made("return max_len", "max_len, max_seq_pages") == {"wrong-variable": ["max_seq_pages"]}


@pytest.mark.parametrize(
    "body",
    ['"""A docstring + 1."""', "assert a + 1", "raise ValueError(a + 1)", "logger.warning(a + 1)", 'return f"{a + 1}"'],
)
def test_what_only_says_something_is_left_alone(body: str) -> None:
    assert made(body) == {}
