"""The emulated operators' signatures, held to those of the vendor's wheel (`fixtures/torch_npu_signatures.json`)."""

import importlib.util
import inspect
import json
import types
import typing
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

from harness.npu import finder  # noqa: F401  registers the emulated operators
from harness.npu.boundary import AttentionRead
from harness.npu.overloads import AttentionOperator, Operator, Traits, taking_what
from harness.npu.registry import emulated_names, lookup

_FIXTURES = Path(__file__).parents[2] / "fixtures"
_SIGNATURES = json.loads((_FIXTURES / "torch_npu_signatures.json").read_text(encoding="utf-8"))
_REQUIRED = "required"

#: Where an emulated operator differs on purpose, as "operator.overload.argument", with "results" for what comes back
#: and "" for the whole overload; and why.
_RING = "torch takes a call with output for the overload out; sglang makes no other, and only that is emulated"
DIFFERENCES: dict[str, str] = {
    "npu_ring_mla.out.": _RING,
    "npu_ring_mla.default.output": _RING,
    "npu_ring_mla.default.softmax_lse": _RING,
}

_EMULATED = {
    name.removeprefix("npu."): found
    for name in emulated_names()
    if name.startswith("npu.") and isinstance(found := lookup(name), Operator)
}


class _Argument(NamedTuple):
    """One argument; `position` is None where it is given by keyword only, `kind` where the emulation does not say."""

    position: int | None
    kind: str | None
    default: Any


_Overload = dict[str, "_Argument | int"]  # the arguments by name, and how many results there are as "results"


def _vendors(schemas: list[str]) -> dict[str, _Overload]:
    found = {}
    for text in schemas:
        schema = torch._C.parse_schema(text)
        taken: _Overload = {"results": len(schema.returns)}
        for position, argument in enumerate(schema.arguments):
            default = argument.default_value if argument.has_default_value() else _REQUIRED
            taken[argument.name] = _Argument(None if argument.kwarg_only else position, str(argument.type), default)
        found[schema.overload_name or "default"] = taken
    return found


def _ours(operator: Operator) -> dict[str, _Overload]:
    found = {}
    for overload, signature in operator.signatures().items():
        taken: _Overload = {"results": _results(signature.return_annotation)}
        for position, argument in enumerate(signature.parameters.values()):
            named = argument.kind is inspect.Parameter.KEYWORD_ONLY
            default = _REQUIRED if argument.default is inspect.Parameter.empty else argument.default
            taken[argument.name] = _Argument(None if named else position, _kind(argument.annotation), default)
        found[overload] = taken
    return found


def _results(annotation: Any) -> int:
    if annotation is None:
        return 0
    return len(typing.get_args(annotation)) if typing.get_origin(annotation) is tuple else 1


def _kind(annotation: Any) -> str | None:
    """How torch names the type of an annotation."""
    if annotation is inspect.Parameter.empty:
        return None
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        (kind,) = (argument for argument in arguments if argument is not types.NoneType)
        return f"Optional[{_kind(kind)}]"
    if origin is not None and issubclass(origin, Iterable):
        return f"List[{'int' if arguments[0] is Any else _kind(arguments[0])}]"
    return str(annotation.__name__)


def _differences(name: str, operator: Operator, schemas: list[str]) -> Iterator[tuple[str, str]]:
    """Each place in which an emulated operator differs from the vendor's schemas, and how."""
    vendors, ours = _vendors(schemas), _ours(operator)
    for overload in sorted(ours.keys() | vendors.keys()):
        place = f"{name}.{overload}"
        if overload not in ours or overload not in vendors:
            yield f"{place}.", f"there is {'none' if overload in ours else 'one'} in the wheel"
            continue
        taken, expected = ours[overload], vendors[overload]
        for argument in sorted(taken.keys() | expected.keys()):
            own, theirs = taken.get(argument), expected.get(argument)
            if isinstance(own, _Argument) and isinstance(theirs, _Argument) and own.kind is None:
                theirs = theirs._replace(kind=None)
            if own != theirs:
                yield f"{place}.{argument}", f"emulated {own}, in the wheel {theirs}"


@pytest.mark.parametrize("name", _EMULATED)
def test_an_emulated_operator_has_the_signature_that_the_vendor_s_wheel_has(name: str) -> None:
    known = name in _SIGNATURES["operators"] or name in _SIGNATURES["absent"]
    assert known, "the fixture has not looked for it: python fixtures/read_signatures.py"
    if name in _SIGNATURES["operators"]:
        found = dict(_differences(name, _EMULATED[name], _SIGNATURES["operators"][name]["schemas"]))
        assert {place: how for place, how in found.items() if place not in DIFFERENCES} == {}


def test_every_stated_difference_is_one() -> None:
    found = {
        place
        for name, vendors in _SIGNATURES["operators"].items()
        if name in _EMULATED
        for place, _ in _differences(name, _EMULATED[name], vendors["schemas"])
    }
    assert DIFFERENCES.keys() <= found
    assert all(DIFFERENCES.values())


def _small(
    query: torch.Tensor, lengths: Iterable[Any] | None = None, *, heads: int = 1, scale: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """An operator to compare."""
    return query, query


_TAKEN = "Tensor query, SymInt[]? lengths=None, *, int heads=1, float scale=1.0, bool flag=False"
_SAME = [
    f"small({_TAKEN}) -> (Tensor, Tensor)",
    f"small.out({_TAKEN}, Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)",
]


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        ("", "", []),
        ("heads=1", "heads=2", ["heads"]),
        ("int heads", "float heads", ["heads"]),
        ("heads", "head_count", ["head_count", "heads"]),
        (", bool flag=False", "", ["flag"]),
        ("flag=False", "flag=True", ["flag"]),
        ("SymInt[]? lengths=None, *, ", "*, SymInt[]? lengths=None, ", ["lengths"]),
        ("Tensor query, SymInt[]? lengths=None", "SymInt[]? lengths, Tensor query", ["lengths", "query"]),
        (" -> (Tensor, Tensor)", " -> Tensor", ["results"]),
        (" -> (Tensor, Tensor)", " -> ()", ["results"]),
    ],
)
def test_a_signature_that_differs_in_anything_is_told(old: str, new: str, places: list[str]) -> None:
    operator = AttentionOperator(_small, Traits({"flag": False}, AttentionRead))
    schemas = [schema.replace(old, new) for schema in _SAME]
    expected = [f"small.{overload}.{place}" for overload in ("default", "out") for place in places]
    assert [place for place, _ in _differences("small", operator, schemas)] == expected


def test_an_overload_that_only_one_of_them_has_is_told() -> None:
    attention = AttentionOperator(_small, Traits({"flag": False}, AttentionRead))
    assert [place for place, _ in _differences("small", attention, _SAME[:1])] == ["small.out."]
    assert [place for place, _ in _differences("small", Operator(_small, Traits({"flag": False})), _SAME)] == [
        "small.out."
    ]


def test_neutral_arguments_are_accepted_at_their_defaults_only() -> None:
    operator = Operator(_small, Traits({"flag": False, "extra": None}))
    query = torch.zeros(1)
    assert operator(query, flag=False, extra=None)[0] is query
    with pytest.raises(NotImplementedError, match="_small: flag = True is not emulated"):
        operator(query, flag=True)
    with pytest.raises(TypeError, match="_small: there is no argument other"):
        operator(query, other=None)


def test_an_operator_can_take_what_another_takes() -> None:
    attention = AttentionOperator(_small, Traits({"flag": False}, AttentionRead))

    taken = dict[str, Any]()

    def compute(**arguments: Any) -> torch.Tensor:
        taken.update(arguments)
        return torch.empty(0)

    operator = Operator(taking_what(attention)(compute))
    query = torch.zeros(1)
    assert operator(query, flag=True).numel() == 0
    assert taken == {"query": query, "flag": True}
    schema = f"compute({_TAKEN}) -> Tensor"
    assert list(_differences("compute", operator, [schema])) == []
    with pytest.raises(TypeError, match="other"):
        operator(torch.zeros(1), other=1)


@pytest.fixture
def reader() -> ModuleType:
    """`fixtures/read_signatures.py`."""
    spec = importlib.util.spec_from_file_location("read_signatures", _FIXTURES / "read_signatures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _wheel(folder: Path, *texts: str) -> Path:
    path = folder / "torch_npu-0.0.0-cp311-cp311-manylinux_2_28_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch_npu/lib/libtorch_npu.so", b"\0".join(text.encode() for text in texts) + b"\0")
        archive.writestr("torch_npu/lib/libop_plugin_atb.so", b"\x7fELF\0")
    return path


def test_schemas_are_read_from_the_libraries_of_a_wheel(reader: ModuleType, tmp_path: Path) -> None:
    mangled, parsed = "small(Tensor query) but no schema", "other(Tensor x) -> Tensor"
    wheel = _wheel(tmp_path, "\x01\x02", _SAME[1], mangled, _SAME[0], _SAME[0], parsed)
    found = reader.schemas(wheel, ["small", "missing"])
    assert list(found) == ["small"]
    assert found["small"]["library"] == "libtorch_npu.so"
    assert [schema.partition("(")[0] for schema in found["small"]["schemas"]] == ["small", "small.out"]


_BAD_WHEELS: list[tuple[Callable[[Path], Path], str]] = [
    (lambda folder: folder / "none.whl", "is no torch_npu wheel: "),
    (lambda folder: _wheel(folder, "nothing"), "has no schema of .*: give a wheel for aarch64"),
]


@pytest.mark.parametrize(("wheel", "sentence"), _BAD_WHEELS)
def test_a_wheel_that_does_not_serve_is_refused_in_one_sentence(
    wheel: Callable[[Path], Path], sentence: str, reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "sources", dict)
    monkeypatch.setattr(reader, "rows", lambda files: [])
    with pytest.raises(SystemExit, match=sentence):
        reader.main(wheel(tmp_path))


def test_a_wheel_that_cannot_be_downloaded_is_asked_for(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SystemExit, match=r"could be downloaded \(.*\): give the path of one"):
        reader.download(str(tmp_path))
