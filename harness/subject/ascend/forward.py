"""Attention really runs: the backend's own forward over real pools, with the sanitizer at the operator boundary."""

from typing import Any

import numpy as np
import torch

from harness.npu.boundary import listening
from harness.scenario import MetadataScenario, Request
from harness.scenario.content import Values, cached, output_size, projections, queries, slots
from harness.scenario.observation import BadAccess, Floats
from harness.subject.ascend.batch import new_positions
from harness.subject.ascend.layers import attend, layer
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.watch import Watch


class Forward:
    """The forward of one round: fill the pool, write what is committed, run, and watch every access."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        self.pools = pools
        self.device = device
        self.layer = layer(scenario, self._tensor(projections(scenario)) if scenario.target == "mla" else None)
        self.watch: Watch | None = None

    @property
    def accesses(self) -> tuple[BadAccess, ...]:
        """What the sanitizer objects to in the round, also where the operator raised."""
        return tuple(self.watch.accesses) if self.watch is not None else ()

    def prepare(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> None:
        """Put the pool into the state before the step: what came before is written, all else holds the fill."""
        assert scenario.attention is not None
        for buffer in self._buffers():
            buffer.fill_(scenario.attention.fill)
        self.watch = Watch(scenario, batch, self.pools.pages + 1)
        starts, _ = new_positions(scenario, batch)
        for request, start in zip(batch, starts, strict=True):
            self._write(scenario, slots(scenario, request.row, range(start)))

    def run(self, scenario: MetadataScenario, batch: tuple[Request, ...], backend: Any, forward_batch: Any) -> Floats:
        """Attention of one round."""
        assert self.watch is not None
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
        pool = self.pools.kv_pool
        with listening(self.watch):
            output = attend(run, self.layer, scenario, forward_batch, pool, self._tensor(rows), (first, second))
        return Floats.of(output.float().cpu().numpy().reshape(*rows.shape[:2], output_size(scenario)))

    def _buffers(self) -> tuple[torch.Tensor, torch.Tensor]:
        pool = self.pools.kv_pool
        return pool.get_key_buffer(0), pool.get_value_buffer(0)

    def _write(self, scenario: MetadataScenario, own: np.ndarray) -> None:
        places = torch.from_numpy(own).to(self.device)
        for buffer, content in zip(self._buffers(), cached(scenario, own), strict=True):
            buffer.view(-1, *content.shape[1:])[places] = self._tensor(content)

    def _tensor(self, content: Values) -> torch.Tensor:
        return torch.from_numpy(content.copy()).to(self.device)
