"""Pairwise covering: a few rows in which every two values of different axes occur together."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

Value = str | int | float | bool | None
Row = Mapping[str, Value]

#: A value of an axis, by the numbers of both: values of different types may be equal (1, 1.0 and True are).
_Choice = tuple[int, int]
_Pair = tuple[_Choice, _Choice]


def covering(axes: Mapping[str, Sequence[Value]], excluded: Sequence[Row] = ()) -> list[dict[str, Value]]:
    """Rows that hold every pair of values that any row can hold; the first has the first value of every axis.

    Args:
        axes: the values of each axis, in the order in which a row is filled.
        excluded: values that no row has together; one that names an axis not among `axes` excludes nothing.

    Greedy and without chance: the same arguments give the same rows. A pair that only excluded rows hold is left out.
    A single axis has no pairs, and a row for each of its values.

    Raises:
        ValueError: an axis without values, first values that are excluded, or an exclusion of a value that no axis has.
    """
    table = _Table(axes, excluded)
    first = tuple((axis, 0) for axis in range(len(axes)))
    if not table.allowed(first):
        raise ValueError("the first values of the axes are excluded together: put other values first.")
    if len(axes) == 1:
        return [{name: value} for name, values in axes.items() for value in values]
    rows, held = [first], set(combinations(first, 2))
    wanted = [pair for pair in table.pairs() if pair not in held]
    while wanted:
        row = table.completed(wanted[0], set(wanted))
        if row is not None:
            rows.append(row)
        held = {wanted[0], *combinations(row or (), 2)}
        wanted = [pair for pair in wanted if pair not in held]
    names = list(axes)
    return [{names[axis]: axes[names[axis]][value] for axis, value in row} for row in rows]


class _Table:
    """The axes by number, and the choices that exclude each other."""

    def __init__(self, axes: Mapping[str, Sequence[Value]], excluded: Sequence[Row]) -> None:
        if empty := [name for name, values in axes.items() if not values]:
            raise ValueError(f"axis {empty[0]} has no values: name one, or leave the axis out.")
        names = list(axes)
        self._sizes = [len(axes[name]) for name in names]
        self._excluded: list[frozenset[_Choice]] = []
        for row in excluded:
            for name in row:
                if name in axes and row[name] not in axes[name]:
                    raise ValueError(f"{name}={row[name]!r} is excluded, but {list(axes[name])} has no such value.")
            if all(name in axes for name in row):
                self._excluded.append(
                    frozenset((names.index(name), axes[name].index(value)) for name, value in row.items())
                )

    def allowed(self, choices: Sequence[_Choice]) -> bool:
        return not any(forbidden <= set(choices) for forbidden in self._excluded)

    def pairs(self) -> Iterator[_Pair]:
        for left, right in combinations(range(len(self._sizes)), 2):
            for a in range(self._sizes[left]):
                for b in range(self._sizes[right]):
                    yield (left, a), (right, b)

    def completed(self, pair: _Pair, wanted: Collection[_Pair]) -> tuple[_Choice, ...] | None:
        """A row with `pair` that is allowed, and has of the `wanted` pairs as many as each step can add."""
        return self._extended(pair, wanted) if self.allowed(pair) else None

    def _extended(self, choices: tuple[_Choice, ...], wanted: Collection[_Pair]) -> tuple[_Choice, ...] | None:
        taken = {axis for axis, _ in choices}
        free = next((axis for axis in range(len(self._sizes)) if axis not in taken), None)
        if free is None:
            return tuple(sorted(choices))

        def gain(value: int) -> int:
            return sum(tuple(sorted(((free, value), other))) in wanted for other in choices)

        for value in sorted(range(self._sizes[free]), key=gain, reverse=True):
            more = (*choices, (free, value))
            if self.allowed(more) and (row := self._extended(more, wanted)) is not None:
                return row
        return None
