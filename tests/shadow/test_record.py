"""The record of the KV slots: whatever must not be read or written is found, and nothing else."""

from collections.abc import Callable

import pytest

from harness.npu.boundary import Event
from harness.shadow.record import Shadow
from harness.shadow.violation import KINDS, NONE, Kind, Violation
from tests.shadow.pool import PAGES, READ, TABLE, WRITE, found, read, two_requests, write

#: A fault, how it is planted, and all that is found. The clean counterpart of each is in `CLEAN`.
PLANTED: list[tuple[Kind, Callable[[Shadow], Event], Violation]] = [
    (
        "never-written",
        lambda shadow: read(shadow, TABLE, [216, 160]),
        found("never-written", 1, 5, 16, 156, 3, 412, 4),
    ),
    (
        "foreign",
        lambda shadow: read(shadow, [[1, 7], [1, 3]], [216, 156]),
        found("foreign", 0, 3, 0, 128, 7, 896, 88),
    ),
    (
        "wrong-position",
        lambda shadow: read(shadow, [[2, 2], [1, 3]], [216, 156]),
        found("wrong-position", 0, 3, 0, 0, 2, 256, 128),
    ),
    (
        "page-out-of-range",
        lambda shadow: read(shadow, [[1, 2], [1, PAGES]], [216, 156]),
        Violation("page-out-of-range", READ, 1, 1, 5, 16, 128, PAGES, PAGES * 128, 28),
    ),
    (
        "table-too-narrow",
        lambda shadow: read(shadow, [[1], [1]], [216, 128]),
        found("table-too-narrow", 0, 3, 0, 128, NONE, NONE, 88),
    ),
    (
        "negative-length",
        lambda shadow: read(shadow, TABLE, [216, -16]),
        found("negative-length", 1, 5, 16, -16, NONE, NONE, 1),
    ),
    (
        "rows-missing",
        lambda shadow: read(shadow, TABLE[:1], [216, 156]),
        found("rows-missing", 1, 5, 16, NONE, NONE, NONE, 1),
    ),
    (
        "padding-read",
        lambda shadow: read(shadow, [[1, 2], [1, 0]], [216, 156]),
        found("padding-read", 1, 5, 16, 128, 0, 0, 28),
    ),
    (
        "written-twice",
        lambda shadow: write([328, 329, 329, 329, 396]),
        found("written-twice", 0, 3, 2, 201, 2, 329, 2),
    ),
    (
        "not-reserved",
        lambda shadow: write([328, 900, 901]),
        found("not-reserved", NONE, 9, 1, 4, 7, 900, 2),
    ),
    (
        "not-reserved",
        lambda shadow: write([328, 1153]),
        found("not-reserved", NONE, NONE, 1, NONE, 9, 1153, 1),
    ),
    (
        "committed-overwritten",
        lambda shadow: write([328, 394, 395, 396]),
        found("committed-overwritten", 1, 5, 1, 138, 3, 394, 2),
    ),
    (
        "shared-overwritten",
        lambda shadow: write([255, 328]),
        found("shared-overwritten", 0, 3, 0, 127, 1, 255, 1),
    ),
    (
        "page-out-of-range",
        lambda shadow: write([328, PAGES * 128, -1]),
        Violation("page-out-of-range", WRITE, 1, NONE, NONE, 1, NONE, PAGES, PAGES * 128, 2),
    ),
]

#: What is right, next to each planted fault.
CLEAN: list[tuple[str, Callable[[Shadow], Event]]] = [
    ("the committed prefix and what the step wrote", lambda shadow: read(shadow, TABLE, [216, 156])),
    ("less than was written", lambda shadow: read(shadow, TABLE, [1, 0])),
    ("a table just wide enough", lambda shadow: read(shadow, [[1], [1]], [128, 128])),
    ("whatever the table says beyond the length", lambda shadow: read(shadow, [[1, 2, -7], [1, 3, 99]], [216, 156])),
    (
        "padded rows that count positions of the padding page",
        lambda shadow: read(shadow, [[1, 2], [1, 3], [0, 0], [0, 0]], [216, 156, 16, 1]),
    ),
    ("the first position after the prefix and the last reserved", lambda shadow: write([328, 639, 396, 895])),
    ("padded rows that all write to the padding page", lambda shadow: write([328, 0, 0, 127, 0])),
    ("nothing", lambda shadow: write([])),
    ("no request", lambda shadow: read(shadow, TABLE, [0, 0])),
]


@pytest.mark.parametrize(
    ("kind", "plant", "expected"), PLANTED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_planted_fault_is_all_that_is_found(
    kind: Kind, plant: Callable[[Shadow], Event], expected: Violation
) -> None:
    shadow = two_requests()
    assert expected.kind == kind
    assert shadow.check(plant(shadow)) == [expected]


def test_every_kind_is_planted() -> None:
    assert {kind for kind, _, _ in PLANTED} == set(KINDS)


@pytest.mark.parametrize(("what", "right"), CLEAN, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_right_is_clean(what: str, right: Callable[[Shadow], Event]) -> None:
    shadow = two_requests()
    assert shadow.check(right(shadow)) == [], what
