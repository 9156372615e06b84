"""A patch replaces the code of one function, and nothing else of it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from harness.errors import CannotJudge
from harness.subject.patch import Definition, Patch, apply

SOURCE = """
from __future__ import annotations

import functools


def twice(function):
    @functools.wraps(function)
    def called(*arguments):
        return 2 * function(*arguments)

    return called


class Base:
    def length(self, prefix: Unknown, block=4):
        return prefix


class Backend(Base):
    def length(self, prefix: Unknown, block=4):
        return super().length(prefix) + block

    @staticmethod
    @twice
    def doubled(number):
        return number
"""
FILE = "patched_in_a_test.py"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / FILE).write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("patched_in_a_test")
    yield sys.modules.pop("patched_in_a_test")


def patch(function: str, old: str, new: str) -> Patch:
    return Patch(FILE, function, Definition(SOURCE, function).text(SOURCE).replace(old, new))


def test_a_method_with_super_and_defaults_is_patched(module: ModuleType) -> None:
    alias = module.Backend.length
    sys.modules["patched_in_a_test"] = module
    apply(patch("Backend.length", "+ block", "- block"))

    assert (module.Backend().length(10), alias(module.Backend(), 10, 1)) == (6, 9)
    assert module.Base().length(10) == 10


def test_decorators_stay(module: ModuleType) -> None:
    sys.modules["patched_in_a_test"] = module
    apply(patch("Backend.doubled", "return number", "return number + 1"))

    assert module.Backend.doubled(1) == 4


def test_a_traceback_names_the_line_of_the_file(module: ModuleType) -> None:
    sys.modules["patched_in_a_test"] = module
    apply(patch("Backend.length", "super().length(prefix)", "super().length(1 // 0)"))

    with pytest.raises(ZeroDivisionError) as raised:
        module.Backend().length(1)
    assert (
        raised.traceback[-1].lineno + 1
        == SOURCE.splitlines().index("        return super().length(prefix) + block") + 1
    )


def test_a_function_that_is_not_there_is_named(module: ModuleType) -> None:
    with pytest.raises(CannotJudge, match=r"no function Backend\.gone"):
        Definition(SOURCE, "Backend.gone")


def test_a_text_that_takes_other_variables_is_refused(module: ModuleType) -> None:
    sys.modules["patched_in_a_test"] = module
    with pytest.raises(CannotJudge, match="takes other variables from around it"):
        apply(patch("Backend.length", "super().length(prefix)", "prefix"))
