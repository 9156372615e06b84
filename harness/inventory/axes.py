"""Which server options and environment switches of a release sessions vary, and why not the others."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from harness.inventory.classification import Classification, Kind, Varied, Verdict, classification, is_rule, verdicts
from harness.inventory.history import History, names, releases_with
from harness.inventory.options import options, switches
from harness.scenario.axes import AXES, Axis
from harness.subject.source import resolve

_PAGE = """# Axes

Every server option and environment switch of sglang {release}: whether it changes lengths, pools, masks, windows, host
mirrors or graphs in speculative decoding, and then with which values sessions vary it, or why not yet.

Computed by `python -m harness.inventory`; do not edit. The names come from the syntax of the release's sources: the
fields of `ServerArgs`, the table in `environ.py`, and variables that the files below read beside it. Their classes are
in `harness/inventory/options.json`, the values in `harness/scenario/axes.py`, what older releases have in
`harness/inventory/history.json`; tests hold the page to all of them.

{options} options and {switches} switches: {axis} axes, {fixed} fixed, {gap} gaps for a known reason,
{out} out of scope, {unclassified} unclassified.

## Unclassified

What no entry of the classification speaks for: a gap until somebody has read how sglang uses it.

{new}

## Targets

The kinds of attention that a target has.

| kind | sessions run | or why not yet |
|---|---|---|
{targets}

## Axes

Sessions hold every two values of different axes together, as far as both apply (pairwise covering); the first value is
that of a session that does not vary the axis, and "unset" leaves it to sglang. Metadata and attention scenarios draw
the field that is named, each in its own range (`harness/scenario/strategies.py`).

| option or switch | releases | default | values in sessions | for | drawn in metadata | changes |
|---|---|---|---|---|---|---|
{axes}

## Fixed

Could be an axis, and has one value for a reason that will stay.

| option or switch | releases | value | why |
|---|---|---|---|
{pinned}

## Gaps

Could change what attention sees, and is not varied.

| why not yet | options and switches |
|---|---|
{gaps}

## Out of scope

Cannot change lengths, pools, masks, windows, host mirrors or graphs in speculative decoding on an NPU with the kinds of
attention that are looked at (MHA, sliding windows, MLA). A rule is a regular expression for whole names. Names that no
rule covers are written out in the classification, so a new one of another form is unclassified.

| why | rules | names by rule | names written out |
|---|---|---|---|
{outside}

## What each release added

Among axes, fixed options, gaps and unclassified ones; the first release is {first}.

| release | added | gone |
|---|---|---|
{added}

## Which files are read for variables

Below `sglang/srt`; a variable whose name is not written out where it is read is not seen.

{read}
"""


def found(root: Path, told: Classification) -> dict[str, str]:
    """The options and switches of the sglang whose `sglang/srt` is `root`, and the default of each."""
    return options(root) | switches(root, tuple(told.read))


def names_in(path: Path) -> set[str]:
    """The names of the options and switches of the sglang in `path`."""
    return set(found(path / "sglang" / "srt", classification()))


def sources(told: Classification) -> dict[str, str]:
    """The options and switches of the classification's release, and the default of each."""
    return found(Path(resolve(told.release).path) / "sglang" / "srt", told)


def page(defaults: Mapping[str, str], changes: History, told: Classification) -> str:
    """The page `docs/axes.md`, from the names and defaults in the newest release, and what is recorded of all."""
    having = names(changes)
    judged = verdicts(frozenset().union(*having.values()), told)
    kinds = [judged[name].kind for name in defaults]
    return _PAGE.format(
        release=told.release,
        read="\n".join(f"- `{pattern}`" for pattern in told.read),
        options=sum(_is_option(name) for name in defaults),
        switches=sum(not _is_option(name) for name in defaults),
        **{kind: kinds.count(kind) for kind in get_args(Kind)},
        new=_unclassified(judged, having),
        targets="\n".join(
            [_row(f"`{target}`", what, "") for target, what in told.targets.items()]
            + [_row(kind, "no", why) for kind, why in told.target_gaps.items()]
        ),
        axes="\n".join(line for name in told.axes for line in _axis(name, told.axes[name], defaults, having)),
        pinned="\n".join(
            _row(f"`{name}`", releases_with(name, having), pinned.value, pinned.why)
            for name, pinned in told.fixed.items()
        ),
        gaps="\n".join(_row(why, _names(_judged(judged, "gap", why))) for why in told.gaps),
        outside="\n".join(_outside(why, judged) for why in told.out),
        first=next(iter(changes)),
        added="\n".join(
            _row(release, _in_scope(change.added, judged), _in_scope(change.gone, judged))
            for release, change in list(changes.items())[1:]
        ),
    )


def _is_option(name: str) -> bool:
    """Fields of `ServerArgs` are named in lower case, and variables are not."""
    return name.islower()


def _unclassified(judged: Mapping[str, Verdict], having: Mapping[str, Collection[str]]) -> str:
    new = _judged(judged, "unclassified", "")
    return "\n".join(f"- `{name}` ({releases_with(name, having)})" for name in new) or "None."


def _axis(
    name: str, varied: Varied, defaults: Mapping[str, str], having: Mapping[str, Collection[str]]
) -> Iterator[str]:
    """The lines of an axis: one, or one for each target whose values differ."""
    told = (
        [(varied.values, "all")]
        if varied.values
        else [(_values(axis), _for(axis)) for axis in AXES if axis.name == name]
    )
    default = f"`{defaults[name]}`" if name in defaults else ""
    field = f"`{varied.field}`" if varied.field else ""
    for values, sessions in told:
        yield _row(f"`{name}`", releases_with(name, having), default, values, sessions, field, varied.changes)


def _values(axis: Axis) -> str:
    return ", ".join("unset" if value is None else str(value) for value in axis.values)


def _for(axis: Axis) -> str:
    return "; ".join(", ".join(some) for some in (axis.algorithms, axis.targets) if some) or "all"


def _outside(why: str, judged: Mapping[str, Verdict]) -> str:
    of_reason = _judged(judged, "out", why)
    by_rule = [name for name in of_reason if is_rule(judged[name].entry)]
    rules = _names(dict.fromkeys(judged[name].entry for name in by_rule))
    return _row(why, rules, str(len(by_rule)), str(len(of_reason) - len(by_rule)))


def _judged(judged: Mapping[str, Verdict], kind: Kind, why: str) -> list[str]:
    return sorted(name for name, verdict in judged.items() if (verdict.kind, verdict.why) == (kind, why))


def _in_scope(some: Iterable[str], judged: Mapping[str, Verdict]) -> str:
    by_kind = {kind: [name for name in some if judged[name].kind == kind] for kind in get_args(Kind) if kind != "out"}
    return "; ".join(f"{kind}: {_names(found)}" for kind, found in by_kind.items() if found)


def _names(some: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in some)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
