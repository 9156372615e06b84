"""The record again as a slow loop over positions: one dictionary entry per slot, no arrays, no pages of pages."""

from collections.abc import Iterator, Sequence

from harness.npu.boundary import AttentionRead, CacheWrite
from harness.shadow.violation import NONE, Kind, Violation

Fault = tuple[Kind, int, int, int, int, int, int]


class SlowShadow:
    """Holders, position and caches written to of every slot; the same methods as Shadow, for inputs it accepts."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pages, self.page_size = pages, page_size
        self.holders: dict[int, set[int]] = {}
        self.position: dict[int, int] = {}
        self.shared: set[int] = set()
        self.written: set[tuple[int, int]] = set()
        self.caches = (1, 2)
        self.step = 0
        self.rows: Sequence[int] = ()
        self.committed: Sequence[int] = ()

    def reserve(self, row: int, pages: Sequence[int], first_position: int = 0, shared: bool = False) -> None:
        for index in range(len(pages) * self.page_size):
            slot = pages[index // self.page_size] * self.page_size + index % self.page_size
            self.holders.setdefault(slot, set()).add(row)
            self.position[slot] = first_position + index
            if shared:
                self.shared.add(slot)

    def free(self, row: int) -> None:
        for slot, holders in list(self.holders.items()):
            holders.discard(row)
            if not holders:
                del self.holders[slot], self.position[slot]
                self.shared.discard(slot)
                self.written -= {(cache, slot) for cache in self.caches}

    def wrote(self, slots: Sequence[int]) -> None:
        self.written |= {(cache, slot) for cache in self.caches for slot in slots}

    def begin_step(self, rows: Sequence[int], committed: Sequence[int]) -> None:
        self.step += 1
        self.rows, self.committed = rows, committed

    def check(self, event: AttentionRead | CacheWrite) -> set[Violation]:
        faults = list(self._read(event) if isinstance(event, AttentionRead) else self._write(event))
        first: dict[tuple[int, str], Fault] = {}
        for fault in faults:
            first.setdefault((fault[1], fault[0]), fault)
        return {
            Violation(
                kind, event.operator, self.step, request, row, query, position, page, slot, self._count(faults, key)
            )
            for key, (kind, request, row, query, position, page, slot) in first.items()
        }

    @staticmethod
    def _count(faults: list[Fault], key: tuple[int, str]) -> int:
        return sum((fault[1], fault[0]) == key for fault in faults)

    def _read(self, event: AttentionRead) -> Iterator[Fault]:
        for request in range(max(len(self.rows), len(event.kv_lengths))):
            row = self.rows[request] if request < len(self.rows) else 0
            query = sum(event.query_lengths[:request])
            if request >= min(len(event.block_table), len(event.kv_lengths)):
                yield from self._missing(event)
                return
            if event.kv_lengths[request] < 0:
                yield "negative-length", request, row, query, event.kv_lengths[request], NONE, NONE
            for position in range(event.kv_lengths[request]):
                column, offset = divmod(position, self.page_size)
                if column >= event.block_table.shape[1]:
                    yield "table-too-narrow", request, row, query, position, NONE, NONE
                    continue
                page = int(event.block_table[request, column])
                slot = page * self.page_size + offset
                kind = self._read_fault(event.cache, row, position, page, slot)
                if kind is not None:
                    yield kind, request, row, query, position, page, slot

    def _missing(self, event: AttentionRead) -> Iterator[Fault]:
        first = min(len(event.block_table), len(event.kv_lengths))
        for _ in range(first, max(len(self.rows), len(event.kv_lengths))):
            row = self.rows[first] if first < len(self.rows) else 0
            yield "rows-missing", first, row, sum(event.query_lengths[:first]), NONE, NONE, NONE

    def _read_fault(self, cache: int, row: int, position: int, page: int, slot: int) -> Kind | None:
        if not 0 <= page < self.pages:
            return "page-out-of-range"
        if row == 0:
            return None
        if page == 0:
            return "padding-read"
        if slot not in self.holders:
            return "never-written"
        if row not in self.holders[slot]:
            return "foreign"
        if self.position[slot] != position:
            return "wrong-position"
        return None if (cache, slot) in self.written else "never-written"

    def _write(self, event: CacheWrite) -> Iterator[Fault]:
        seen: set[int] = set()
        for index, slot in enumerate(event.slots.tolist()):
            holders = self.holders.get(slot, set())
            request = next((i for i, row in enumerate(self.rows) if row in holders), NONE)
            row = self.rows[request] if request != NONE else NONE
            if request == NONE and slot not in self.shared and holders:
                (row,) = holders
            rest = request, row, index, self.position.get(slot, NONE), slot // self.page_size, slot
            if not 0 <= slot < self.pages * self.page_size:
                yield "page-out-of-range", *rest
                continue
            if slot < self.page_size:
                continue
            if slot in self.shared:
                yield "shared-overwritten", *rest
            elif request == NONE:
                yield "not-reserved", *rest
            elif self.position[slot] < self.committed[request]:
                yield "committed-overwritten", *rest
            if slot in seen:
                yield "written-twice", *rest
            seen.add(slot)
            if request != NONE:
                self.written.add((event.cache, slot))
