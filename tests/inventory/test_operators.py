"""`docs/operators.md` says what is true of the release and of the emulation."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.inventory import operators
from harness.inventory.operators import Scope, matching, page, rows, scope, sources
from harness.subject.source import resolve

_DOCS = Path(__file__).parents[2] / "docs"
_AGAIN = "run `python -m harness.inventory`"


@pytest.fixture(scope="module")
def named() -> dict[str, dict[str, int]]:
    return sources()


def _holes(told: Scope, named: dict[str, dict[str, int]]) -> Iterator[str]:
    """What the scope leaves open or says too much."""
    inside, outside = matching(told.inside, named), matching(told.outside, named)
    yield from (f"{file} is in neither list" for file in named if file not in (*inside, *outside))
    yield from (f"{file} is in both lists" for file in inside if file in outside)
    stated = [name for names in told.not_covered.values() for name in names]
    yield from (f"{name} has two reasons" for name in set(stated) if stated.count(name) > 1)
    found = {row.operator: row for row in rows(named)}
    yield from (f"{name} is not called" for name in stated if name not in found)
    for row in found.values():
        if row.emulated and row.operator in stated:
            yield f"{row.operator} is emulated: it needs no reason"
        if not row.emulated and not row.reason:
            yield f"{row.operator} is not emulated: it needs a reason"


def test_every_file_is_in_scope_or_out_and_every_operator_is_emulated_or_has_a_reason(
    named: dict[str, dict[str, int]],
) -> None:
    assert list(_holes(scope(), named)) == []


def test_every_pattern_of_the_scope_matches_a_file_of_the_release() -> None:
    root = Path(resolve(scope().release).path) / "sglang" / "srt"
    patterns = [pattern for group in (scope().inside, scope().outside) for found in group.values() for pattern in found]
    assert [pattern for pattern in patterns if not list(root.glob(pattern))] == []


def test_the_committed_page_is_the_computed_one() -> None:
    assert (_DOCS / "operators.md").read_text(encoding="utf-8") == page(), _AGAIN


_TOLD = Scope("0.5.23", {"a": ["attention/*.py"]}, {"b": ["moe/*.py"]}, {"why": ["npu.npu_missing"]})
_NAMED = {
    "attention/backend.py": {"npu.npu_missing": 3, "npu.npu_fused_infer_attention_score.out": 4},
    "moe/topk.py": {"npu.npu_moe": 1},
}


@pytest.mark.parametrize(
    ("change", "more", "hole"),
    [
        ({}, {}, None),
        ({}, {"lora/new.py": {"npu.npu_new": 1}}, "lora/new.py is in neither list"),
        ({"outside": {"b": ["moe/*.py", "attention/*.py"]}}, {}, "attention/backend.py is in both lists"),
        ({"not_covered": {}}, {}, "npu.npu_missing is not emulated: it needs a reason"),
        ({"not_covered": {"why": ["npu.npu_missing", "npu.npu_gone"]}}, {}, "npu.npu_gone is not called"),
        ({"not_covered": {"a": ["npu.npu_missing"], "b": ["npu.npu_missing"]}}, {}, "npu.npu_missing has two reasons"),
        (
            {"not_covered": {"why": ["npu.npu_missing", "npu.npu_fused_infer_attention_score.out"]}},
            {},
            "npu.npu_fused_infer_attention_score.out is emulated: it needs no reason",
        ),
        ({}, {"attention/new.py": {"npu._npu_paged_attention.out": 1}}, "npu._npu_paged_attention.out is not emulated"),
    ],
)
def test_a_hole_is_told(
    change: dict[str, dict[str, list[str]]],
    more: dict[str, dict[str, int]],
    hole: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = replace(_TOLD, **change)
    monkeypatch.setattr(operators, "scope", lambda: told)
    found = list(_holes(told, _NAMED | more))
    assert len(found) == (hole is not None)
    assert all(one.startswith(hole or "") for one in found)


def test_an_operator_is_checked_by_the_sanitizer_if_it_announces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "scope", lambda: _TOLD)
    names = ("npu._npu_reshape_and_cache", "npu._npu_paged_attention", "npu.npu_missing")
    kernel = "sgl_kernel_npu.mem_cache.allocator.alloc_extend_kernel"
    found = rows({"attention/backend.py": dict.fromkeys((*names, kernel), 1)})
    assert [(row.emulated, row.watched) for row in found] == [
        (True, "reads"),
        (True, "writes"),
        (False, ""),
        (True, "no KV access"),
    ]
