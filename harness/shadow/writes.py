"""Judging a cache write: every slot is one that a request of the step has reserved and not yet committed."""

import numpy as np
import numpy.typing as npt

from harness.npu.boundary import CacheWrite
from harness.scenario.metadata import PADDING_PAGE
from harness.shadow.ownership import NO_REQUEST, NOBODY, SHARED, Ownership
from harness.shadow.step import Step
from harness.shadow.violation import NONE, Kind, Violation


def judge_write(
    event: CacheWrite,
    ownership: Ownership,
    page_requests: npt.NDArray[np.int64],
    step: Step,
    first_use: npt.NDArray[np.int64],
) -> tuple[list[Violation], npt.NDArray[np.int64]]:
    """What is wrong with `event`, and the slots that count as written: those that a request of the step holds.

    `first_use` is room for a number per slot, whatever it holds.
    """
    slots = np.asarray(event.slots, dtype=np.int64).reshape(-1)
    inside = (slots >= 0) & (slots < len(first_use))
    within = np.where(inside, slots, PADDING_PAGE)
    pages = within // ownership.page_size
    positions = ownership.first[pages] + within - pages * ownership.page_size
    live = pages != PADDING_PAGE
    requests = page_requests[pages]
    shared = ownership.owner[pages] == SHARED
    ours = requests != NO_REQUEST

    order = np.arange(len(slots))
    first_use[within[::-1]] = order[::-1]
    faults: dict[Kind, npt.NDArray[np.bool_]] = {
        "page-out-of-range": ~inside,
        "shared-overwritten": shared,
        "not-reserved": live & ~shared & ~ours,
        "committed-overwritten": ours & ~shared & (positions < step.committed[requests]),
        "written-twice": live & (first_use[within] != order),
    }
    found: list[Violation] = []
    for kind, fault in faults.items():
        if not fault.any():
            continue
        for request in np.unique(requests[fault]).tolist():
            places = np.flatnonzero(fault & (requests == request))
            place = int(places[0])
            slot = int(slots[place])
            owner = int(ownership.owner[pages[place]])
            row = step.rows[request] if request != NO_REQUEST else owner if owner > NOBODY else NONE
            position = int(positions[place]) if owner != NOBODY else NONE
            page = slot // ownership.page_size
            found.append(
                Violation(kind, event.operator, step.number, request, row, place, position, page, slot, len(places))
            )
    return found, within[ours]
