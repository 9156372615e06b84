"""What the sanitizer says: one request of one operator call that reads or writes what it must not."""

from typing import Literal, get_args

import msgspec

Kind = Literal[
    "never-written",
    "foreign",
    "wrong-position",
    "page-out-of-range",
    "table-too-narrow",
    "negative-length",
    "rows-missing",
    "padding-read",
    "written-twice",
    "not-reserved",
    "committed-overwritten",
    "shared-overwritten",
]
Consequence = Literal["error 507015", "silent wrong attention"]

#: What a user sees of an access that stops nothing.
SILENT: Consequence = "silent wrong attention"
KINDS: tuple[Kind, ...] = get_args(Kind)
#: In a field of a violation: there is no such number.
NONE = -1

#: What is said of the slot, for every kind that is about one.
_SLOT: dict[Kind, str] = {
    "never-written": "was never written",
    "foreign": "belongs to another request",
    "wrong-position": "holds another position",
    "page-out-of-range": "is outside the cache",
    "padding-read": "is padding",
    "written-twice": "is written twice by one call",
    "not-reserved": "is not reserved for any request of the step",
    "committed-overwritten": "is part of the committed prefix",
    "shared-overwritten": "is shared with other requests",
}
_WRITES: frozenset[Kind] = frozenset({"written-twice", "not-reserved", "committed-overwritten", "shared-overwritten"})
_ADDRESS: frozenset[Kind] = frozenset({"page-out-of-range", "table-too-narrow", "negative-length"})


class Violation(msgspec.Struct, frozen=True):
    """The first position at which `request` commits a fault of this kind, and how many positions (`count`) do.

    `request` is an index in the batch and `row` its row in the pool: 0 for a padded row, `NONE` where the slot of a
    write belongs to nobody. `query` is the first query row of the request; of a write, the row of the values.
    `position` of a negative length is that length. Of missing rows, `request` is the first and `count` all of them.
    """

    kind: Kind
    operator: str
    step: int
    request: int
    row: int
    query: int
    position: int
    page: int
    slot: int
    count: int

    @property
    def consequence(self) -> Consequence:
        """What a user sees: the device's address error, or nothing but wrong outputs."""
        return "error 507015" if self.kind in _ADDRESS else SILENT

    def sentence(self) -> str:
        """The violation as one line, without its consequence."""
        return f"{self.operator} {self._fault()} [step {self.step}]"

    def _fault(self) -> str:
        request = f"request {self.request} (row {self.row})"
        if self.kind == "rows-missing":
            return f"is given no row for {request} ({_counted(self.count, 'row')} missing)"
        if self.kind == "negative-length":
            return f"is told to read {self.position} positions of {request}"
        count = _counted(self.count, "position")
        if self.kind == "table-too-narrow":
            return f"reads position {self.position} of {request}: the block table ends before it ({count})"
        # A write outside the cache is to no position of anybody; a read always has one.
        verb = "writes" if self.kind in _WRITES or self.position == NONE else "reads"
        slot = f"page {self.page}, slot {self.slot} {_SLOT[self.kind]} ({count})"
        if self.position == NONE:
            return f"{verb} where it must not: {slot}"
        if self.request != NONE:
            return f"{verb} position {self.position} of {request}: {slot}"
        owner = "several rows" if self.row == NONE else f"row {self.row}"
        return f"{verb} position {self.position} of {owner}: {slot}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
