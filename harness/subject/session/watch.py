"""Watching the forwards of a session: what is published, what attention is told, and what the sanitizer objects to."""

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from msgspec.structs import replace

from harness.npu.boundary import AttentionRead, CacheWrite, Event, SlotEvent, TileWrite
from harness.npu.paged_cache import TILE
from harness.scenario.observation import BadAccess, Changed, Forward
from harness.shadow.ledger import Ledger, Row
from harness.subject.session.accounts import Accounts
from harness.subject.session.numbers import Integers, integers
from harness.subject.session.pools import Pools

#: Accesses and changes that are kept of a session: the first ones say what is wrong.
ENOUGH = 20
#: What a forward publishes, and must leave as it is.
PUBLISHED = ("seq_lens_cpu", "seq_lens", "req_pool_indices")
#: Forward modes of sglang by the names of docs/contract.md, for the target and for its draft.
_MODES = {
    "EXTEND": ("extend", "extend"),
    "MIXED": ("mixed", "mixed"),
    "SPLIT_PREFILL": ("extend", "extend"),
    "DECODE": ("decode", "draft_decode"),
    "TARGET_VERIFY": ("target_verify", "draft_block"),
    "DRAFT_EXTEND": ("draft_extend", "draft_extend"),
    "DRAFT_EXTEND_V2": ("draft_extend", "draft_extend"),
    "IDLE": ("idle", "idle"),
}


class Watch:
    """Listens at the operator boundary, and stands around the forwards of both models.

    `visit_of` finds the number of a visit by its row in the pool.
    """

    def __init__(self, visit_of: Callable[[int], int], pools: Pools, accounts: Accounts) -> None:
        self.visit_of = visit_of
        self.pools = pools
        self.accounts = accounts
        self.turn = 0
        self.begin()

    def begin(self, late: bool = False) -> None:
        """A new session: nothing is written yet.

        With `late` streams nothing is watched: when a forward is launched its tensors do not hold yet what they will,
        and its operators run, and say what they touch, when it is over.
        """
        self.late = late
        self.ledger = Ledger(self.pools.windows)
        self.forwards: list[Forward] = []
        self.accesses: dict[BadAccess, None] = {}
        self.rewritten: list[Changed] = []
        self._now: _Now | None = None
        #: A layer has two caches: keys and values, or latents and rotary parts.
        self._latest: deque[int] = deque(maxlen=2)

    def around(self, runner_of: Callable[[Any], Any], call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, a method that takes a forward batch first, watched; `runner_of` finds the runner of its object."""

        @functools.wraps(call)
        def watched(owner: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            if self.late or self._now is not None:
                return call(owner, forward_batch, *args, **kwargs)
            self._now = _Now(runner_of(owner), forward_batch, self)
            self.ledger.step += 1
            published = {name: getattr(forward_batch, name, None) for name in PUBLISHED}
            before = {name: _copy(tensor) for name, tensor in published.items()}
            try:
                result = call(owner, forward_batch, *args, **kwargs)
                for unfinished in self._now.unfinished():
                    self._object(self.ledger.read(unfinished, self._now.rows, self._now.slots(False)))
                return result
            finally:
                now, self._now = self._now, None
                self.forwards.append(now.forward)
                self._compare(now.forward, before, published)

        return watched

    def replaying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, a method that replays a graph, noted."""

        @functools.wraps(call)
        def noted(*args: Any, **kwargs: Any) -> Any:
            if self._now is not None:
                self._now.forward = replace(self._now.forward, replayed=True)
            return call(*args, **kwargs)

        return noted

    def __call__(self, event: Event) -> None:
        """An operator is about to read or write the KV cache."""
        if self.late:
            return
        for one in self._meant(event):
            if isinstance(one, AttentionRead):
                self._read(one)
            else:
                self._write(one)

    def _meant(self, event: Event) -> list[SlotEvent]:
        """The same event by slots; MLA may decode over a copy of both caches that its layer has just written."""
        if isinstance(event, TileWrite):
            width = self.pools.widths.get(event.cache)
            return [] if width is None else [event.slots(width // TILE, self.accounts.page_size)]
        if isinstance(event, AttentionRead) and event.cache not in self.pools.widths:
            return [event._replace(cache=cache) for cache in self._latest]
        return [event]

    def _read(self, event: AttentionRead) -> None:
        now = self._now
        if now is not None and now.forward.visits:
            window = event.cache in self.pools.windows
            rows = now.told(event)
            self._object(self.ledger.read(event, rows, now.slots(window), now.window if window else None))

    def _write(self, event: CacheWrite) -> None:
        now = self._now
        self._latest.append(event.cache)
        rows = now.rows if now is not None and not now.forward.draft else None
        table = now.slots(event.cache in self.pools.windows) if now is not None else _NOBODY
        self._object(self.ledger.write(event, self.accounts.page_size, rows, table))

    def _object(self, violations: list[Any]) -> None:
        for bad in violations:
            if len(self.accesses) < ENOUGH:
                mode = self._now.forward.mode if self._now is not None else "between forwards"
                sentence = f"{mode}, turn {self.turn}: {bad.sentence()}"
                self.accesses[BadAccess(bad.kind, sentence, bad.consequence)] = None

    def _compare(self, forward: Forward, before: dict[str, Integers | None], published: dict[str, Any]) -> None:
        """What was written to the tensors that came in; a runner may put others into their places in the batch."""
        for name, old in before.items():
            new = _copy(published[name])
            if old is None or new is None or len(self.rewritten) >= ENOUGH or (old == new).all():
                continue
            dtype = str(published[name].dtype).removeprefix("torch.")
            self.rewritten.append(Changed(f"{forward.mode} {name}", dtype, tuple(old.tolist()), tuple(new.tolist())))


class _Now:
    """The forward that is running: its batch as rows of the pool."""

    def __init__(self, runner: Any, batch: Any, watch: Watch) -> None:
        draft = bool(runner.is_draft_worker)
        mode = _MODES.get(batch.forward_mode.name, (batch.forward_mode.name.lower(),) * 2)[draft]
        live = 0 if mode == "idle" else int(batch.batch_size)
        rows = integers(batch.req_pool_indices)[:live].tolist()
        device = integers(batch.seq_lens)[:live].tolist()
        host = None if batch.seq_lens_cpu is None else tuple(integers(batch.seq_lens_cpu)[:live].tolist())
        added = getattr(batch, "extend_seq_lens_cpu", None)
        new_tokens = () if added is None or mode not in ("extend", "mixed") else tuple(integers(added)[:live].tolist())
        block = int(getattr(batch.spec_info, "draft_token_num", 0) or 0) if batch.spec_info is not None else 0
        visits = tuple(watch.visit_of(row) for row in rows)
        table = integers(runner.req_to_token_pool.req_to_token)
        self._table, self._window_table = table, watch.accounts.in_window(table)
        #: What a window layer sees before a query's own position.
        self.window = int(runner.sliding_window_size or 0)
        self._parts: dict[int, list[AttentionRead]] = {}
        self.forward = Forward(watch.turn, draft, mode, visits, tuple(device), host, new_tokens, block)
        self.rows = [
            Row(row, *_writable(mode, length, new, block))
            for row, length, new in zip(rows, device, new_tokens or (0,) * live, strict=True)
        ]

    def slots(self, window: bool) -> Integers:
        """The slots of the pool's rows, in the window's pool or in all others."""
        return self._window_table if window else self._table

    def told(self, event: AttentionRead) -> list[Row]:
        """The requests that an attention call is for; keeps the KV lengths that a whole batch is told, if they are new.

        A call with fewer rows than the batch goes on where the last one of its cache ended: window layers may extend
        request by request (read: `forward_extend` of 0.5.17 to 0.5.23 with FIA).
        """
        before = self._parts.pop(event.cache, [])
        begun = sum(len(part.kv_lengths) for part in before)
        parts = [*before, event]
        told = tuple(length for part in parts for length in part.kv_lengths)
        if len(told) < len(self.rows):
            self._parts[event.cache] = parts
        elif told not in self.forward.reads:
            self.forward = replace(self.forward, reads=(*self.forward.reads, told))
        return self.rows[begun : begun + len(event.kv_lengths)] if before or len(told) < len(self.rows) else self.rows

    def unfinished(self) -> list[AttentionRead]:
        """Calls for a part of the batch after which none came for the rest."""
        return [parts[-1] for parts in self._parts.values()]


def _writable(mode: str, length: int, new: int, block: int) -> tuple[int, int]:
    """The positions that a forward of the target writes."""
    if mode in ("extend", "mixed"):
        return length - new, length
    if mode == "decode":
        return length - 1, length
    return length, length + block


def _copy(value: Any) -> Integers | None:
    return integers(value) if isinstance(value, torch.Tensor) else None


_NOBODY: Integers = integers([[0]])
