"""Which operators a release can call in speculative decoding, and which of them are emulated and watched."""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from harness.inventory.calls import called
from harness.npu import finder  # noqa: F401  registers what is emulated
from harness.npu.boundary import AttentionRead, CacheWrite
from harness.npu.overloads import Operator
from harness.npu.registry import Stub, lookup
from harness.subject.source import resolve

_PAGE = """# Operators

Every operator that the Ascend MHA and MLA paths of sglang {release} can call in speculative decoding: whether it is
emulated (`harness/npu`), what of it the KV-slot sanitizer (`harness/shadow`) checks, and why the rest is not covered.

Computed by `python -m harness.inventory`; do not edit. The operators come from the syntax of the release's sources,
what is emulated from what `harness/npu` registers, scope and reasons from `harness/inventory/scope.json`, and a test
holds the page to all three. That an operator announces to the sanitizer what its row says is tested by calling it
(`tests/npu/test_announcements.py`).

{operators} operators: {emulated} emulated, of which {watched} access the KV cache and are checked; {missing} not
covered.

| operator | emulated | sanitizer | named in | why not |
|---|---|---|---|---|
{rows}

`npu.X` is reached as `torch_npu.X` or `torch.ops.npu.X`; `X.out` writes into tensors that it is given. The lines are
those of the first mention in a file.

## Which files are looked at

All below `sglang/srt`:

{inside}

These name operators, too, and are left out. A file that names one and is in neither list fails a test.

{outside}

No operators, and so not here: the runtime (`torch.npu`: streams, events, graphs, memory), operators of torch itself,
and the Triton kernels in sglang's own sources, which the emulated NPU interprets.
"""
_WATCHED = {AttentionRead: "reads", CacheWrite: "writes", None: "no KV access"}


class Scope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which files of a release are looked at and which are not, with reasons; and why operators are not covered.

    Paths are patterns below `sglang/srt`.
    """

    release: str
    inside: dict[str, list[str]] = msgspec.field(name="in")
    outside: dict[str, list[str]] = msgspec.field(name="out")
    not_covered: dict[str, list[str]] = msgspec.field(name="not covered")


class Row(NamedTuple):
    """An operator, the files that name it, and what there is of it; `reason` says why nothing is, or is empty."""

    operator: str
    files: tuple[str, ...]
    emulated: bool
    watched: str
    reason: str


def scope() -> Scope:
    """The scope of the page."""
    return msgspec.json.decode((Path(__file__).parent / "scope.json").read_bytes(), type=Scope)


def sources() -> dict[str, dict[str, int]]:
    """The operators that each file of the scope's release names, by its path below `sglang/srt`."""
    return called(Path(resolve(scope().release).path) / "sglang" / "srt")


def rows(files: dict[str, dict[str, int]]) -> list[Row]:
    """A row for each operator that the files inside of the scope name."""
    inside = matching(scope().inside, files)
    reasons = {name: reason for reason, names in scope().not_covered.items() for name in names}
    operators = sorted({name for file in inside for name in files[file]})
    return [
        Row(name, tuple(file for file in inside if name in files[file]), *_state(name), reasons.get(name, ""))
        for name in operators
    ]


def matching(groups: dict[str, list[str]], files: Iterable[str]) -> list[str]:
    """The files that a pattern of any group matches."""
    patterns = [pattern for group in groups.values() for pattern in group]
    return [file for file in files if any(PurePosixPath(file).match(pattern) for pattern in patterns)]


def _state(operator: str) -> tuple[bool, str]:
    """Whether an operator, or the overload of it that is meant, is emulated, and what of it is announced."""
    name = operator.removesuffix(".out")
    emulated = lookup(name)
    if isinstance(emulated, Stub):
        return False, ""
    if not isinstance(emulated, Operator):
        return True, _WATCHED[None]
    wanted = "default" if name == operator else "out"
    return wanted in emulated.signatures(), _WATCHED[emulated.traits.announces]


def page() -> str:
    """The page `docs/operators.md`."""
    files, told = sources(), scope()
    found = rows(files)
    return _PAGE.format(
        release=told.release,
        operators=len(found),
        emulated=sum(row.emulated for row in found),
        watched=sum(row.watched in (_WATCHED[AttentionRead], _WATCHED[CacheWrite]) for row in found),
        missing=sum(not row.emulated for row in found),
        rows="\n".join(_line(row, files) for row in found),
        inside=_listed(told.inside),
        outside=_listed(told.outside),
    )


def _line(row: Row, files: dict[str, dict[str, int]]) -> str:
    where = ", ".join(f"`{file}:{files[file][row.operator]}`" for file in row.files)
    return f"| `{row.operator}` | {'yes' if row.emulated else 'no'} | {row.watched} | {where} | {row.reason} |"


def _listed(groups: dict[str, list[str]]) -> str:
    return "\n".join(
        f"- {reason}: {', '.join(f'`{name}`' for name in patterns)}" for reason, patterns in groups.items()
    )
