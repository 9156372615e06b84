"""Attention on an NPU, with the sanitizer at the operator boundary."""

from collections.abc import Callable
from typing import Any

import torch

from harness.npu.boundary import Event, SlotEvent, TileWrite, listening
from harness.npu.dispatch import submit
from harness.scenario import MetadataScenario, Request
from harness.scenario.content import TILE
from harness.scenario.observation import BadAccess
from harness.subject.ascend.layers import Inputs
from harness.subject.ascend.pools import Pools
from harness.subject.ascend.steps import run_together
from harness.subject.ascend.unwatched import WINDOW, UnwatchedForward
from harness.subject.ascend.watch import Watch


class Forward(UnwatchedForward):
    """The forward of one round, with every access to the KV cache watched."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        super().__init__(scenario, pools, device)
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
        """Put the pools into the state before what is run, and watch what comes."""
        assert scenario.attention is not None
        first_step = run_together(scenario)[0]
        self.watches, self._watch_of, self._tiles_of = [], {}, {}
        for layer in self.layers:
            watch = Watch(first_step, batch, self.pools.pages + 1, layer.layer_id == WINDOW, observed=scenario.step)
            self.watches.append(watch)
            for buffer in self._buffers(layer):
                self._watch_of[buffer.data_ptr()] = watch
                if scenario.attention.nz:
                    self._tiles_of[buffer.data_ptr()] = buffer.shape[-1] // TILE
        super().prepare(scenario, batch)

    def attend(self, scenario: MetadataScenario, backend: Any, forward_batch: Any, inputs: Inputs) -> torch.Tensor:
        """See `UnwatchedForward`; the watches are told which step it is, by a graph again in every replay."""
        submit(lambda: self._begin(scenario))
        return super().attend(scenario, backend, forward_batch, inputs)

    def watched(self, step: Callable[[], torch.Tensor]) -> torch.Tensor:
        """The output of `step`, on the device, with every access of it watched."""
        with listening(self._hear):
            output = step()
        for watch in self.watches:
            watch.end()
        return output

    def _begin(self, step: MetadataScenario) -> None:
        """Tell the watches that the next events are about `step`."""
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


def _without_pool(event: SlotEvent) -> None:
    raise LookupError(f"{event.operator} works on a cache at {event.cache:#x}, which is none of the pool's")
