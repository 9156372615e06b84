"""Captured attention: the layers of a scenario in real graphs of the device, one per bucket, with all steps in it.

The graphs are captured and replayed by the release's own `NPUCudaGraphBackend`: its warm-ups, its update of host
lengths from another thread, its order of update and replay. What the driver does itself is what a model would: it puts
queries, keys and values into static memory before a replay.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from harness.subject.ascend import releases
from harness.subject.ascend.layers import Inputs
from harness.subject.blame import StandIn


class Graphs:
    """The graphs of one graph runner, by bucket.

    It stands where the runner's `backend` is: notes the host lengths of each replay, and hands them on to the release's
    own graphs where there are any.
    """

    def __init__(self, result: Any, captured: "CapturedAttention | None" = None) -> None:
        self.result = result
        self.captured = captured
        self.lengths: list[list[int]] = []

    def replay_with_input_update(
        self, key: Any, seq_lens: Any = None, cpu_update_input: Any = None, **options: Any
    ) -> Any:
        """One list of lengths for every captured operator, or one per draft step."""
        if cpu_update_input is not None:
            self.lengths = [list(value) for update in cpu_update_input for value in update.values()]
        else:
            self.lengths = [list(seq_lens)]
        if self.captured is not None:
            self.captured.replay(key, seq_lens=seq_lens, cpu_update_input=cpu_update_input, **options)
        return self.result


class CapturedAttention:
    """A forward of one or more steps, captured per bucket: up to `most` rows a step, of inputs as in `example`."""

    def __init__(self, model_runner: Any, example: Inputs, most: int, steps: int) -> None:
        from sglang.srt.hardware_backend.npu.graph_runner.npu_cudagraph_backend import NPUCudaGraphBackend

        runner = StandIn(device_module=torch.npu, model_runner=model_runner, enable_torch_compile=False)  # type: ignore[attr-defined]
        self.inputs = [Inputs(*(part.new_zeros(most, *part.shape[1:]) for part in example)) for _ in range(steps)]
        self._graphs = NPUCudaGraphBackend(runner)
        self._stream = torch.npu.Stream()  # type: ignore[attr-defined]
        self._outputs: Sequence[torch.Tensor] = ()

    def capture(self, bucket: int, rows: int, attend: Callable[[list[Inputs]], list[torch.Tensor]]) -> None:
        """Capture `attend`, from inputs to outputs of every step, for the first `rows` rows of the static inputs."""
        live = [Inputs(*(part[:rows] for part in inputs)) for inputs in self.inputs]
        with self._graphs.capture_session(self._stream):
            releases.call(self._graphs.capture_one, shape_key=bucket, forward_fn=lambda: attend(live))

    def put(self, steps: Sequence[Inputs]) -> None:
        """Put every step's inputs of the next replay where the graphs read them; rows that pad keep what they held."""
        for static, inputs in zip(self.inputs, steps, strict=True):
            for kept, part in zip(static, inputs, strict=True):
                kept[: len(part)].copy_(part)

    def replay(self, bucket: int, **options: Any) -> None:
        """Update and replay the graph of `bucket`."""
        self._outputs = self._graphs.replay_with_input_update(bucket, **options)

    def output(self, step: int, rows: int) -> torch.Tensor:
        """The first `rows` rows of what `step` of the last replay made."""
        return self._outputs[step][:rows]

    def close(self) -> None:
        """End the thread that updates, if this release keeps one."""
        self._graphs.cleanup()
