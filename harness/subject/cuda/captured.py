"""Attention that is captured and replayed: in CUDA graphs on a GPU, and without a graph where it is interpreted.

The metadata of a replay is what counts: the backend fills the buffers that its capture has pointed the kernels at.
Without a GPU the kernels are launched over the same buffers again, with the metadata object of the capture.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import torch

from harness.scenario import MetadataScenario
from harness.subject.ascend.batch import Batch
from harness.subject.ascend.captured import CapturedAttention
from harness.subject.ascend.layers import Inputs
from harness.subject.ascend.replay import GraphExecutor
from harness.subject.ascend.unwatched import UnwatchedForward
from harness.subject.blame import StandIn

Attend = Callable[[list[Inputs]], list[torch.Tensor]]
Launch = Callable[[], Sequence[torch.Tensor]]


class CudaExecutor(GraphExecutor):
    """The graph executor over a backend of a GPU; a replay pads the batch, then launches what was captured."""

    captured: "Launches"

    def _capturing(self, model_runner: Any, example: Inputs, most: int) -> "Launches":
        backends = getattr(self.backend, "attn_backends", [self.backend])
        return Launches(backends, example, most, len(self.steps))

    def _running(self, scenario: MetadataScenario, model_runner: Any) -> StandIn:
        return StandIn()

    def _captured_forward(self, forward: UnwatchedForward, view: Any, inputs: list[Inputs]) -> list[torch.Tensor]:
        """A graph of CUDA's runners begins with what the backend prepares in it (`run_once` of the runners)."""
        self.backend.init_forward_metadata_in_graph(view)
        return super()._captured_forward(forward, view, inputs)

    def replay(self, batch: Batch) -> None:
        """Pad and replay one batch."""
        self.load(batch.forward_batch)
        self.captured.replay(self.runner.bs)


class Launches(CapturedAttention):
    """What was captured, by bucket: up to `most` rows a step, of inputs as in `example`, over `backends`."""

    def __init__(self, backends: Sequence[Any], example: Inputs, most: int, steps: int) -> None:
        self.backends = backends
        self.inputs = [Inputs(*(part.new_zeros(most, *part.shape[1:]) for part in example)) for _ in range(steps)]
        self._replays: dict[int, Launch] = {}
        self._outputs: Sequence[torch.Tensor] = ()

    def capture(self, bucket: int, rows: int, attend: Attend) -> None:
        """See `CapturedAttention`."""
        live = [Inputs(*(part[:rows] for part in inputs)) for inputs in self.inputs]
        launch: Launch = partial(attend, live)
        if live[0].queries.is_cuda:
            launch = _graph(launch)
        # A graph keeps the addresses of its tensors and the values of its numbers; a replay renews tensors alone. That
        # what was captured is the backend's metadata again says whose lengths they are on a GPU, too: a replay of
        # FlashInfer's does not set them (`init_forward_metadata_out_graph`, 0.5.15 to 0.5.23).
        metadata = [copy(backend.forward_metadata) for backend in self.backends]
        self._replays[bucket] = partial(self._launched, metadata, launch)

    def replay(self, bucket: int, **options: Any) -> None:
        """Launch what was captured for `bucket`."""
        self._outputs = self._replays[bucket]()

    def close(self) -> None:
        """Let go of the graphs."""
        self._replays.clear()

    def _launched(self, metadata: Sequence[Any], launch: Launch) -> Sequence[torch.Tensor]:
        for backend, captured in zip(self.backends, metadata, strict=True):
            backend.forward_metadata = captured
        return launch()


def _graph(attend: Launch) -> Launch:
    """A CUDA graph of `attend`, after a warm-up that compiles the kernels."""
    attend()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = attend()

    def replay() -> Sequence[torch.Tensor]:
        graph.replay()
        torch.cuda.synchronize()
        return outputs

    return replay
