"""Watching one round at the operator boundary: the sanitizer's records, and what it objects to."""

from collections.abc import Iterable, Iterator, Sequence

from harness.npu.boundary import AttentionRead, CacheWrite, SlotEvent
from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.content import slots
from harness.scenario.observation import BadAccess
from harness.shadow.record import Shadow
from harness.shadow.violation import SILENT, Violation
from harness.subject.ascend.steps import new_positions

#: A layer has two caches: keys and values, or latents and rope parts.
BOTH = 2


class Watch:
    """A listener for the events of one layer, from the step of `scenario` on.

    `accesses` are those of the step `observed` that are wrong, each named once; what other steps write counts as
    written, and only that. The layer is one of the full pool or, with `window`, of the window pool.
    """

    def __init__(
        self,
        scenario: MetadataScenario,
        batch: tuple[Request, ...],
        cache_pages: int,
        window: bool,
        observed: int | None = None,
    ) -> None:
        self.accesses: list[BadAccess] = []
        #: By cache, the last call for a part of the batch, and the first request that it is for.
        self._parts: dict[int, tuple[AttentionRead, int]] = {}
        self._batch = batch
        self._observed = scenario.step if observed is None else observed
        self._written: dict[int, None] = {}
        self._shadow = _shadow(scenario, batch, cache_pages, window)
        self._is_observed = False
        self.begin(scenario)

    def begin(self, step: MetadataScenario) -> None:
        """The next events are about `step`."""
        self.end()
        starts, counts = new_positions(step, self._batch)
        of_requests = zip(self._batch, starts, counts, strict=True)
        self._own = [(request.row, start, start + count) for request, start, count in of_requests]
        self._is_observed = step.step == self._observed
        self._shadow.begin_step([request.row for request in self._batch], [request.prefix for request in self._batch])

    def end(self) -> None:
        """No event is to come of this step: a batch that was left in the middle misses rows."""
        unfinished, self._parts = self._parts, {}
        for event, first in unfinished.values():
            self._object(self._shadow.check(event, first))

    def __call__(self, event: SlotEvent) -> None:
        """Note what is wrong with an access once, although two caches have the same slots."""
        if isinstance(event, CacheWrite):
            self._written[event.cache] = None
        for one in self._meant(event):
            if isinstance(one, AttentionRead):
                first = self._first(one)
                self._object(self._shadow.check(one, first, more=one.cache in self._parts), self._too_short(one, first))
            else:
                self._object(self._shadow.check(one))

    def _object(self, violations: Sequence[Violation], too_short: Iterable[BadAccess] = ()) -> None:
        found = [*(BadAccess(bad.kind, bad.sentence(), bad.consequence) for bad in violations), *too_short]
        if self._is_observed:
            self.accesses += [access for access in dict.fromkeys(found) if access not in self.accesses]

    def _first(self, event: AttentionRead) -> int:
        """The first request that a read is for: one of fewer than the batch goes on where the last one ended.

        Where TND takes no heads of their size, an extend attends request by request (`forward_extend`, FIA, 0.5.17 to
        0.5.23).
        """
        before, begun = self._parts.pop(event.cache, (None, 0))
        first = 0 if before is None else begun + len(before.kv_lengths)
        if first + len(event.kv_lengths) < len(self._batch):
            self._parts[event.cache] = (event, first)
        return first

    def _too_short(self, event: AttentionRead, first: int) -> Iterator[BadAccess]:
        """Every query sees its own position: a read that ends before that was told a length of another time."""
        own = self._own[first:]
        for index, ((row, start, end), length) in enumerate(zip(own, event.kv_lengths, strict=False), start=first):
            if 0 <= length < end:
                told = f"{event.operator} is told to read {length} positions of request {index} (row {row})"
                sentence = f"{told}, whose queries stand at positions {start} to {end - 1}"
                yield BadAccess("own-position-unread", f"{sentence}: {SILENT}", SILENT)

    def _meant(self, event: SlotEvent) -> list[SlotEvent]:
        """A step writes to both caches first: a read of another one is of a copy of both, over which MLA decodes."""
        if isinstance(event, CacheWrite) or event.cache in self._written or len(self._written) < BOTH:
            return [event]
        return [event._replace(cache=cache) for cache in self._written]


def _shadow(scenario: MetadataScenario, batch: tuple[Request, ...], cache_pages: int, window: bool) -> Shadow:
    """Every row owns the pages of its prefix and of two blocks beyond it, as the scheduler reserves them.

    Written is what came before the step: the committed prefix, and what earlier steps of a multi-step draft wrote. In
    the window pool, what has left the window counts, too: an operator is told of all positions, and which of them it
    sees is judged by the outputs.
    """
    pages = PageMap(scenario)
    shadow = Shadow(cache_pages, scenario.pool.page_size)
    starts, _ = new_positions(scenario, batch)
    for request, start in zip(batch, starts, strict=True):
        reserved = request.prefix + max(request.new_tokens, 2 * scenario.draft_tokens)
        table = [pages.swa_page(page) if window else page for page in pages.table(request.row, reserved)]
        shared = min(pages.shared, len(table))
        shadow.reserve(request.row, table[:shared], shared=True)
        shadow.reserve(request.row, table[shared:], first_position=shared * scenario.pool.page_size)
        own = slots(scenario, request.row, range(start))
        shadow.wrote(pages.swa_slot(own) if window else own)
    return shadow
