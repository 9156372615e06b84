"""Attention really runs: the backend's own forward over real pools, with the sanitizer at the operator boundary."""

from typing import Any

import numpy as np
import torch

from harness.npu.boundary import listening
from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.content import Values, cached, output_size, projections, queries, sinks, slots
from harness.scenario.observation import BadAccess, Floats
from harness.subject.ascend.batch import new_positions
from harness.subject.ascend.layers import attend, layers
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.watch import Watch

#: The layer that reads the window pool.
WINDOW = 1


class Forward:
    """The forward of one round: fill the pools, write what is committed, run every layer, and watch every access."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        self.pools = pools
        self.device = device
        self.layers = layers(scenario, self._tensor(projections(scenario)) if scenario.target == "mla" else None)
        self.watches: list[Watch] = []

    @property
    def accesses(self) -> tuple[BadAccess, ...]:
        """What the sanitizer objects to in the round, also where the operator raised."""
        return tuple(dict.fromkeys(access for watch in self.watches for access in watch.accesses))

    def prepare(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> None:
        """Put the pools into the state before the step: what came before is written, all else holds the fill.

        In the window pool, what no query of the step can see any more holds the fill again: its page may be gone.
        """
        assert scenario.attention is not None
        starts, _ = new_positions(scenario, batch)
        self.watches = []
        for layer in self.layers:
            window = layer.layer_id == WINDOW
            self.watches.append(Watch(scenario, batch, self.pools.pages + 1, window))
            for buffer in self._buffers(layer):
                buffer.fill_(scenario.attention.fill)
            for request, start in zip(batch, starts, strict=True):
                first = max(0, start + 1 - scenario.window) if window else 0
                self._write(scenario, slots(scenario, request.row, range(first, start)), layer)

    def run(self, scenario: MetadataScenario, batch: tuple[Request, ...], backend: Any, forward_batch: Any) -> Floats:
        """Attention of one round, the heads of all layers side by side."""
        assert scenario.attention is not None
        starts, counts = new_positions(scenario, batch)
        new = [
            slots(scenario, request.row, range(start, start + count))
            for request, start, count in zip(batch, starts, counts, strict=True)
        ]
        written = np.concatenate(new)
        rows = queries(scenario, len(written))
        first, second = (self._tensor(content) for content in cached(scenario, written))
        one = backend.attn_backends[scenario.step] if scenario.mode == "draft_decode" else backend
        run = one.forward_decode if scenario.mode in ("decode", "draft_decode") else one.forward_extend
        sink = self._tensor(sinks(scenario)) if scenario.attention.sinks else None
        outputs = []
        for layer, watch in zip(self.layers, self.watches, strict=True):
            arguments = (scenario, forward_batch, self.pools.kv_pool, self._tensor(rows), (first, second), sink)
            with listening(watch):
                output = attend(run, layer, *arguments)
            outputs.append(output.float().cpu().numpy().reshape(*rows.shape[:2], output_size(scenario)))
        return Floats.of(np.concatenate(outputs, axis=1))

    def _buffers(self, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        pool = self.pools.kv_pool
        return pool.get_key_buffer(layer.layer_id), pool.get_value_buffer(layer.layer_id)

    def _write(self, scenario: MetadataScenario, own: np.ndarray, layer: Any) -> None:
        of_layer = PageMap(scenario).swa_slot(own) if layer.layer_id == WINDOW else own
        places = torch.from_numpy(of_layer).to(self.device)
        for buffer, content in zip(self._buffers(layer), cached(scenario, own), strict=True):
            buffer.view(-1, *content.shape[1:])[places] = self._tensor(content)

    def _tensor(self, content: Values) -> torch.Tensor:
        return torch.from_numpy(content.copy()).to(self.device)
