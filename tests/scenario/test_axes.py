"""The axes of a session are data that holds together, and few sessions hold every two of their values."""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import get_args

import pytest

from harness.scenario.axes import AXES, EXCLUDED, session_axes
from harness.scenario.covering import Row, Value, covering
from harness.scenario.metadata import Algorithm
from harness.scenario.session import SessionTarget

_KNOWN = {axis.name for axis in AXES}


def _missing(axes: Mapping[str, Sequence[Value]], excluded: Sequence[Row], rows: Sequence[Row]) -> set[tuple[Row, ...]]:
    """The pairs of values that an allowed row of the whole product holds, and none of `rows`, by brute force."""

    def pairs(row: Row) -> set[tuple[tuple[str, str], ...]]:
        return set(combinations([(name, repr(row[name])) for name in axes], 2))

    every = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    allowed = [row for row in every if not any(_holds(row, forbidden) for forbidden in excluded)]
    assert all(dict(row) in allowed for row in rows)
    return set().union(*map(pairs, allowed)) - set().union(*map(pairs, rows))


def _holds(row: Row, part: Row) -> bool:
    return all(name in row and row[name] == value for name, value in part.items())


_SMALL: dict[str, tuple[Value, ...]] = {"a": (1, 2, 3), "b": (False, True), "c": ("0", "1"), "d": (None, 5, 6)}
_FORBIDDEN: tuple[Row, ...] = ({"a": 2, "b": True}, {"b": False, "c": "1", "d": 5}, {"a": 1, "elsewhere": 3})


@pytest.mark.parametrize("excluded", [(), _FORBIDDEN])
def test_every_pair_that_can_be_is_in_a_row(excluded: tuple[Row, ...]) -> None:
    rows = covering(_SMALL, excluded)

    assert _missing(_SMALL, excluded, rows) == set()
    assert len(rows) < 3 * 2 * 2 * 3 / 2


@pytest.mark.parametrize("left_out", range(1, 9))
def test_a_row_left_out_is_noticed(left_out: int) -> None:
    rows = covering(_SMALL)

    assert _missing(_SMALL, (), rows[:left_out] + rows[left_out + 1 :]) != set()


def test_a_pair_that_no_row_can_hold_is_left_out_and_all_others_are_kept() -> None:
    axes = {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
    excluded = ({"a": 1, "b": 1, "c": 0}, {"a": 1, "b": 1, "c": 1})

    rows = covering(axes, excluded)

    assert not any(_holds(row, {"a": 1, "b": 1}) for row in rows)
    assert _missing(axes, excluded, rows) == set()


def test_the_first_row_has_the_first_values_and_the_rows_are_the_same_each_time() -> None:
    assert covering(_SMALL)[0] == {"a": 1, "b": False, "c": "0", "d": None}
    assert covering(_SMALL) == covering(dict(_SMALL))


@pytest.mark.parametrize(
    ("axes", "excluded", "sentence"),
    [
        ({"a": ()}, (), "axis a has no values"),
        ({"a": (1, 2)}, ({"a": 1},), "the first values of the axes are excluded"),
        ({"a": (1, 2)}, ({"a": 3},), r"a=3 is excluded, but \[1, 2\] has no such value"),
    ],
)
def test_axes_that_cannot_be_covered_are_refused(
    axes: dict[str, tuple[Value, ...]], excluded: tuple[Row, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        covering(axes, excluded)


def test_every_axis_has_two_values_or_more_and_those_of_variables_are_text() -> None:
    assert all(len(set(map(repr, axis.values))) == len(axis.values) >= 2 for axis in AXES)
    assert all(isinstance(value, str) for axis in AXES if axis.kind == "environment" for value in axis.values)


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
@pytest.mark.parametrize("target", get_args(SessionTarget))
def test_no_session_has_an_axis_twice(algorithm: Algorithm, target: SessionTarget) -> None:
    names = [axis.name for axis in AXES if axis.applies(algorithm, target)]

    assert sorted(set(names)) == sorted(names)


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
@pytest.mark.parametrize("target", get_args(SessionTarget))
def test_two_dozen_sessions_hold_every_two_values_of_the_axes(algorithm: Algorithm, target: SessionTarget) -> None:
    axes = session_axes(algorithm, target, _KNOWN)

    rows = covering(axes, EXCLUDED)

    wanted = {
        ((a, repr(x)), (b, repr(y)))
        for a, b in combinations(axes, 2)
        for x in axes[a]
        for y in axes[b]
        if not any(_holds({a: x, b: y}, forbidden) for forbidden in EXCLUDED)
    }
    held = {pair for row in rows for pair in combinations([(name, repr(value)) for name, value in row.items()], 2)}
    assert wanted <= held
    assert not any(_holds(row, forbidden) for row in rows for forbidden in EXCLUDED)
    assert len(rows) <= 24


def test_a_session_has_the_axes_of_its_algorithm_and_target_that_the_sglang_knows() -> None:
    axes = session_axes("DFLASH", "swa", _KNOWN - {"schedule_policy"})

    assert axes["page_size"] == (128, 64, 16)
    assert {"speculative_draft_window_size", "swa_full_tokens_ratio"} <= set(axes)
    assert not {"speculative_num_steps", "SGLANG_USE_FIA_NZ", "schedule_policy"} & set(axes)


def test_a_single_axis_has_a_row_for_each_value() -> None:
    assert covering({"page_size": (128, 64, 16)}) == [{"page_size": 128}, {"page_size": 64}, {"page_size": 16}]
