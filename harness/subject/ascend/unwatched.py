"""Attention really runs: the backend's own forward over real pools, whatever the device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.content import TILE, Values, cached, output_size, projections, queries, sinks, slots
from harness.scenario.observation import BadAccess
from harness.subject.ascend.layers import Inputs, attend, layers
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.steps import locations_of_step, new_positions, padded_rows, run_together

#: The layer that reads the window pool.
WINDOW = 1


class UnwatchedForward:
    """The forward of one round: fill the pools, write what is committed, run every layer."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        self.pools = pools
        self.device = device
        self.layers = layers(scenario, self._tensor(projections(scenario)) if scenario.target == "mla" else None)
        self.sinks: torch.Tensor | None = None
        if scenario.attention is not None and scenario.attention.sinks:
            self.sinks = self._tensor(sinks(scenario))

    @property
    def accesses(self) -> tuple[BadAccess, ...]:
        """What the sanitizer objects to in the round: nothing where nobody watches."""
        return ()

    def prepare(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> None:
        """Put the pools into the state before what is run: what came before is written, all else holds the fill.

        In the window pool, what no query can see any more holds the fill again: its page may be gone.
        """
        assert scenario.attention is not None
        starts, _ = new_positions(run_together(scenario)[0], batch)
        for layer in self.layers:
            for buffer in self._buffers(layer):
                buffer.fill_(scenario.attention.fill)
            for request, start in zip(batch, starts, strict=True):
                first = max(0, start + 1 - scenario.window) if layer.layer_id == WINDOW else 0
                self._write(scenario, slots(scenario, request.row, range(first, start)), layer)

    def inputs(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> Inputs:
        """What the step computes with; rows that pad hold the first slots of the padding page."""
        starts, counts = new_positions(scenario, batch)
        new = [
            slots(scenario, request.row, range(start, start + count))
            for request, start, count in zip(batch, starts, counts, strict=True)
        ]
        written = np.concatenate([*new, np.arange(padded_rows(scenario, batch))])
        first, second = cached(scenario, written)
        return Inputs(self._tensor(queries(scenario, len(written))), self._tensor(first), self._tensor(second))

    def attend(self, scenario: MetadataScenario, backend: Any, forward_batch: Any, inputs: Inputs) -> torch.Tensor:
        """Every layer's attention of one step: (query rows, heads of all layers, dimension), on the device."""
        one = backend.attn_backends[scenario.step] if scenario.mode == "draft_decode" else backend
        run = one.forward_decode if scenario.mode in ("decode", "draft_decode") else one.forward_extend
        with locations_of_step(scenario, forward_batch):
            pool = self.pools.kv_pool
            outputs = [attend(run, layer, scenario, forward_batch, pool, inputs, self.sinks) for layer in self.layers]
        return torch.cat([output.reshape(len(inputs.queries), -1, output_size(scenario)) for output in outputs], dim=1)

    def eager(
        self, scenario: MetadataScenario, batch: tuple[Request, ...], backend: Any, forward_batch: Any
    ) -> torch.Tensor:
        """Attention of one round over the metadata that `backend` has built."""
        inputs = self.inputs(scenario, batch)
        made = self.watched(lambda: self.attend(scenario, backend, forward_batch, inputs))
        return made[: len(made) - padded_rows(scenario, batch)]

    def watched(self, step: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The output of `step`, on the device."""
        return step()

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
        return torch.from_numpy(content.copy()).to(self.device, self.pools.dtype)
