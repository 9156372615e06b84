"""Judging an attention call: every position that it will read is written, the request's own, and where it belongs."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from harness.npu.boundary import AttentionRead
from harness.scenario.metadata import PADDING_PAGE
from harness.shadow.ownership import NOBODY, Ownership
from harness.shadow.step import PADDING_ROW, Step
from harness.shadow.violation import NONE, Kind, Violation

#: Faults of a position by number; 0 is none. Where several apply, the greatest is reported.
_FAULTS: tuple[Kind, ...] = ("never-written", "wrong-position", "foreign", "padding-read", "page-out-of-range")
_NEVER_WRITTEN, _WRONG_POSITION, _FOREIGN, _PADDING, _OUTSIDE = range(1, len(_FAULTS) + 1)


def judge_read(
    event: AttentionRead,
    ownership: Ownership,
    steps: npt.NDArray[np.int32],
    step: Step,
    first: int = 0,
    more: bool = False,
) -> list[Violation]:
    """What is wrong with `event`, where `steps` holds the step of the last write of every page and slot.

    The event is about the requests from `first` on, and there are `more` events to come for those that it leaves out.
    """
    found: list[Violation] = []
    lengths = event.kv_lengths
    present = min(len(event.block_table), len(lengths))
    wanted = len(lengths) if more else max(len(step.rows) - first, len(lengths))
    if len(event.query_lengths) < min(len(step.rows) - first, wanted):
        present = min(present, len(event.query_lengths))
    missing = wanted - present
    query = 0
    for index in range(present):
        request, row = first + index, step.row(first + index)
        for kind, position, page, slot, count in _row_faults(event, index, row, ownership, steps):
            found.append(Violation(kind, event.operator, step.number, request, row, query, position, page, slot, count))
        query += event.query_lengths[index] if index < len(event.query_lengths) else 0
    if missing:
        request, row = first + present, step.row(first + present)
        found.append(
            Violation("rows-missing", event.operator, step.number, request, row, query, NONE, NONE, NONE, missing)
        )
    return found


def _row_faults(
    event: AttentionRead, index: int, row: int, ownership: Ownership, steps: npt.NDArray[np.int32]
) -> Iterator[tuple[Kind, int, int, int, int]]:
    """Kind, position, page, slot and count of every kind of fault of one row."""
    length = event.kv_lengths[index]
    if length < 0:
        yield "negative-length", length, NONE, NONE, 1
        return
    page_size = event.page_size
    covered = min(length, event.block_table.shape[1] * page_size)
    if covered < length:
        yield "table-too-narrow", covered, NONE, NONE, length - covered
    table = event.block_table[index, : -(-covered // page_size)]
    faults = _position_faults(table, covered, row, ownership, steps)
    if faults is None:
        return
    for number, kind in enumerate(_FAULTS, start=1):
        positions = np.flatnonzero(faults == number)
        if positions.size:
            position = int(positions[0])
            page = int(table[position // page_size])
            yield kind, position, page, page * page_size + position % page_size, len(positions)


def _position_faults(
    table: npt.NDArray[np.int64], length: int, row: int, ownership: Ownership, steps: npt.NDArray[np.int32]
) -> npt.NDArray[np.int8] | None:
    """The fault of each of the first `length` positions, or None where there is none; a page at a time."""
    page_size = ownership.page_size
    outside = (table < 0) | (table >= ownership.pages)
    if row == PADDING_ROW:
        return np.repeat(outside * np.int8(_OUTSIDE), page_size)[:length] if outside.any() else None
    pages = np.where(outside, PADDING_PAGE, table)
    faults = np.zeros(len(pages), dtype=np.int8)
    faults[ownership.first[pages] != np.arange(len(pages)) * page_size] = _WRONG_POSITION
    faults[~ownership.held_by(row)[pages]] = _FOREIGN
    faults[ownership.owner[pages] == NOBODY] = _NEVER_WRITTEN
    faults[pages == PADDING_PAGE] = _PADDING
    faults[outside] = _OUTSIDE
    unwritten = steps[pages].reshape(-1)[:length] < 0
    if not faults.any() and not unwritten.any():
        return None
    spread = np.repeat(faults, page_size)[:length]
    spread[(spread == 0) & unwritten] = _NEVER_WRITTEN
    return spread
