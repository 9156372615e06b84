"""Attention really runs: the backend's own forward over real pools, with the sanitizer at the operator boundary."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from harness.npu.boundary import Event, SlotEvent, TileWrite, listening
from harness.npu.dispatch import submit
from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.content import TILE, Values, cached, output_size, projections, queries, sinks, slots
from harness.scenario.observation import BadAccess
from harness.subject.ascend.layers import Inputs, attend, layers
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.steps import locations_of_step, new_positions, run_together
from harness.subject.ascend.watch import Watch

#: The layer that reads the window pool.
WINDOW = 1


class Forward:
    """The forward of one round: fill the pools, write what is committed, run every layer, and watch every access."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        self.pools = pools
        self.device = device
        self.layers = layers(scenario, self._tensor(projections(scenario)) if scenario.target == "mla" else None)
        self.sinks: torch.Tensor | None = None
        if scenario.attention is not None and scenario.attention.sinks:
            self.sinks = self._tensor(sinks(scenario))
        self.watches: list[Watch] = []
        self._watch_of: dict[int, Watch] = {}
        #: Tiles of a row of each cache in the layout NZ.
        self._tiles_of: dict[int, int] = {}
        self._latest: Callable[[SlotEvent], None] = _without_pool

    @property
    def accesses(self) -> tuple[BadAccess, ...]:
        """What the sanitizer objects to in the round, also where the operator raised."""
        return tuple(dict.fromkeys(access for watch in self.watches for access in watch.accesses))

    def prepare(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> None:
        """Put the pools into the state before what is run: what came before is written, all else holds the fill.

        In the window pool, what no query can see any more holds the fill again: its page may be gone.
        """
        assert scenario.attention is not None
        first_step = run_together(scenario)[0]
        starts, _ = new_positions(first_step, batch)
        self.watches, self._watch_of, self._tiles_of = [], {}, {}
        for layer in self.layers:
            window = layer.layer_id == WINDOW
            watch = Watch(first_step, batch, self.pools.pages + 1, window, observed=scenario.step)
            self.watches.append(watch)
            for buffer in self._buffers(layer):
                self._watch_of[buffer.data_ptr()] = watch
                if scenario.attention.nz:
                    self._tiles_of[buffer.data_ptr()] = buffer.shape[-1] // TILE
                buffer.fill_(scenario.attention.fill)
            for request, start in zip(batch, starts, strict=True):
                first = max(0, start + 1 - scenario.window) if window else 0
                self._write(scenario, slots(scenario, request.row, range(first, start)), layer)

    def inputs(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> Inputs:
        """What the step computes with."""
        starts, counts = new_positions(scenario, batch)
        new = [
            slots(scenario, request.row, range(start, start + count))
            for request, start, count in zip(batch, starts, counts, strict=True)
        ]
        written = np.concatenate(new) if new else np.zeros(0, dtype=np.int64)
        first, second = cached(scenario, written)
        return Inputs(self._tensor(queries(scenario, len(written))), self._tensor(first), self._tensor(second))

    def attend(self, scenario: MetadataScenario, backend: Any, forward_batch: Any, inputs: Inputs) -> torch.Tensor:
        """Every layer's attention of one step: (query rows, heads of all layers, dimension), on the device."""
        one = backend.attn_backends[scenario.step] if scenario.mode == "draft_decode" else backend
        run = one.forward_decode if scenario.mode in ("decode", "draft_decode") else one.forward_extend
        submit(lambda: self._begin(scenario))
        with locations_of_step(scenario, forward_batch):
            pool = self.pools.kv_pool
            outputs = [attend(run, layer, scenario, forward_batch, pool, inputs, self.sinks) for layer in self.layers]
        return torch.cat([output.reshape(len(inputs.queries), -1, output_size(scenario)) for output in outputs], dim=1)

    def eager(
        self, scenario: MetadataScenario, batch: tuple[Request, ...], backend: Any, forward_batch: Any
    ) -> torch.Tensor:
        """Attention of one round over the metadata that `backend` has built, every access watched."""
        inputs = self.inputs(scenario, batch)
        return self.watched(lambda: self.attend(scenario, backend, forward_batch, inputs))

    def watched(self, step: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The output of `step`, on the device, with every access of it watched."""
        with listening(self._hear):
            return step()

    def _begin(self, step: MetadataScenario) -> None:
        """Tell the watches that the next events are about `step`; a graph says so again in every replay."""
        for watch in self.watches:
            watch.begin(step)

    def _hear(self, event: Event) -> None:
        """Tell the watch of the pool that the event is about; a copy of a pool is one that has just been written."""
        if isinstance(event, TileWrite):
            if event.cache not in self._tiles_of:  # what is scattered in rows of 16 need not be a cache
                return
            event = event.slots(self._tiles_of[event.cache], self.pools.page_size)
        if event.cache in self._watch_of:
            self._latest = self._watch_of[event.cache]
        self._latest(event)

    def _buffers(self, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        pool = self.pools.kv_pool
        return pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)

    def _write(self, scenario: MetadataScenario, own: np.ndarray, layer: Any) -> None:
        of_layer = PageMap(scenario).swa_slot(own) if layer.layer_id == WINDOW else own
        places = torch.from_numpy(of_layer).to(self.device)
        for buffer, content in zip(self._buffers(layer), cached(scenario, own), strict=True):
            if scenario.attention is not None and scenario.attention.nz:
                page_size, tiles = buffer.shape[1], buffer.shape[-1] // TILE
                rows = self._tensor(content).view(-1, tiles, TILE)
                buffer.view(-1, tiles, page_size, TILE)[places // page_size, :, places % page_size] = rows
            else:
                buffer.view(-1, *content.shape[1:])[places] = self._tensor(content)

    def _tensor(self, content: Values) -> torch.Tensor:
        return torch.from_numpy(content.copy()).to(self.device)


def _without_pool(event: SlotEvent) -> None:
    raise LookupError(f"{event.operator} works on a cache at {event.cache:#x}, which is none of the pool's")
