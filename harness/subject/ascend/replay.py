"""The graph executor: capture per bucket, then the release's own graph runner for every replay.

What is real: the backend's capture and replay methods, `build_replay_fb_view`, and the code of `NPUGraphRunner.execute`
(or `_replay_graph` of the EAGLE runners) that computes the list of host lengths for the captured operators. What the
driver does itself: the copy into the padded static buffers, by the fill values of `cuda_graph_buffer_registry.py`
(lengths, rows, locations and positions of padded rows are 0 in 0.5.15 to 0.5.23). Where attention runs, it is captured
and replayed in graphs of the device (`captured.py`); elsewhere only the lengths that a graph would get are noted.
"""

from functools import partial
from typing import Any

import torch

from harness.scenario import MetadataScenario, Request
from harness.subject.ascend import releases
from harness.subject.ascend.batch import Batch, BatchBuilder
from harness.subject.ascend.captured import CapturedAttention, Graphs
from harness.subject.ascend.layers import Inputs
from harness.subject.ascend.steps import run_together, steps_of
from harness.subject.ascend.unwatched import UnwatchedForward
from harness.subject.blame import StandIn


class Buffers(StandIn):
    """The static input buffers of a graph runner; dtypes as in `runner_utils/buffers.py`.

    A request has `width` tokens, and as many cache locations for each of its `steps`; a row that pads has the length
    `padding`.
    """

    def __init__(self, most: int, width: int, steps: int, device: str, padding: int) -> None:
        self.steps = steps
        self.padding = padding
        super().__init__(
            seq_lens=torch.zeros(most, dtype=torch.int64, device=device),
            seq_lens_cpu=torch.zeros(most, dtype=torch.int64),
            req_pool_indices=torch.zeros(most, dtype=torch.int64, device=device),
            out_cache_loc=torch.zeros(most * width * steps, dtype=torch.int32, device=device),
            positions=torch.zeros(most * width, dtype=torch.int64, device=device),
            input_ids=torch.zeros(most * width, dtype=torch.int64, device=device),
            encoder_lens=None,
            mamba_track_indices=None,
        )

    def fill(self, forward_batch: Any, raw: int, padded: int, width: int) -> None:
        """Copy the live rows and fill the padded ones; a source that is None leaves its buffer as it was."""
        for name, live, all_rows in (
            ("seq_lens", raw, padded),
            ("seq_lens_cpu", raw, padded),
            ("req_pool_indices", raw, padded),
            ("out_cache_loc", raw * width * self.steps, padded * width * self.steps),
            ("positions", raw * width, padded * width),
        ):
            source = getattr(forward_batch, name)
            if source is not None:
                buffer = getattr(self, name)
                buffer[:live].copy_(source[:live])
                buffer[live:all_rows] = self.padding if name in ("seq_lens", "seq_lens_cpu") else 0


class GraphExecutor:
    """Captured buckets of one scenario over one backend."""

    def __init__(
        self,
        scenario: MetadataScenario,
        backend: Any,
        model_runner: Any,
        builder: BatchBuilder,
        forward: UnwatchedForward | None,
    ) -> None:
        self.backend = backend
        self.forward = forward
        self.builder = builder
        self.mode = builder.modes[scenario.mode]
        self.drafts = scenario.mode if scenario.mode in ("draft_decode", "draft_extend") else None
        self.buckets = sorted(scenario.buckets)
        self.width = 1 if scenario.mode in ("decode", "draft_decode") else scenario.draft_tokens
        self.steps = run_together(scenario)
        self.locations = self.width * steps_of(scenario)
        most, padding = self.buckets[-1] * self.width, self._fill_value()
        self.buffers = Buffers(self.buckets[-1], self.width, steps_of(scenario), builder.device, padding)
        self.captured: CapturedAttention | None = None
        if forward is not None:
            self.captured = self._capturing(model_runner, forward.inputs(scenario, ()), most)
        self.runner = self._running(scenario, model_runner)
        backend.init_cuda_graph_state(self.buckets[-1], most)
        for bucket in reversed(self.buckets):
            self._capture(scenario, bucket)

    def _capturing(self, model_runner: Any, example: Inputs, most: int) -> CapturedAttention:
        """The graphs of the device, whose inputs are like `example` and have up to `most` rows."""
        return CapturedAttention(model_runner, example, most, len(self.steps))

    def _running(self, scenario: MetadataScenario, model_runner: Any) -> Any:
        """The graph runner that replays them."""
        return _runner(scenario, self, model_runner)

    def _capture(self, scenario: MetadataScenario, bucket: int) -> None:
        buffers = self.buffers
        tokens = bucket * self.width
        view = self.builder.forward_batch(
            forward_mode=self.mode,
            batch_size=bucket,
            input_ids=buffers.input_ids[:tokens],
            req_pool_indices=buffers.req_pool_indices[:bucket],
            seq_lens=buffers.seq_lens[:bucket],
            seq_lens_cpu=buffers.seq_lens_cpu[:bucket],
            seq_lens_sum=0,
            out_cache_loc=buffers.out_cache_loc[: bucket * self.locations],
            positions=buffers.positions[:tokens],
            spec_algorithm=self.builder.algorithm(scenario.algorithm),
            spec_info=self.builder.spec_info(scenario, tokens),
            **({"extend_seq_lens_cpu": [self.width] * bucket} if self.drafts == "draft_extend" else {}),
        )
        self.builder.bind(view)
        self.backend.init_forward_metadata_out_graph(view, in_capture=True)
        if self.captured is not None and self.forward is not None:
            self.captured.capture(bucket, tokens, partial(self._captured_forward, self.forward, view))

    def _captured_forward(self, forward: UnwatchedForward, view: Any, inputs: list[Inputs]) -> list[torch.Tensor]:
        """What a graph holds: every step's attention to its own inputs, by the batch in `view`."""
        return [forward.attend(step, self.backend, view, own) for step, own in zip(self.steps, inputs, strict=True)]

    def attention(self, scenario: MetadataScenario, requests: tuple[Request, ...], batch: Batch) -> torch.Tensor:
        """Replay one batch with its queries, keys and values, and return what the step makes of its live rows."""
        assert self.captured is not None and self.forward is not None
        inputs = [self.forward.inputs(step, requests) for step in self.steps]
        self.captured.put(inputs)
        self.replay(batch)
        return self.captured.output(scenario.step, len(inputs[scenario.step].queries))

    @property
    def host_lengths(self) -> list[list[int]]:
        """The host lengths that the last replay was given, per captured step."""
        lengths: list[list[int]] = self.runner.backend.lengths
        return lengths

    def close(self) -> None:
        """Let go of what the graphs hold: runner and executor know each other, so nothing else would for a while."""
        if self.captured is not None:
            self.captured.close()
        vars(self.runner).clear()

    def replay(self, batch: Batch) -> None:
        """Pad and replay one batch."""
        forward_batch = batch.forward_batch
        if self.drafts is None:
            self.runner.execute(forward_batch)
        else:
            self.load(forward_batch)
            if self.drafts == "draft_decode" and forward_batch.seq_lens_cpu is not None:
                forward_batch = StandIn(seq_lens_cpu=self.buffers.seq_lens_cpu[: self.runner.bs])
            self.runner._replay_graph(self.runner.bs, forward_batch)

    def load(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> None:
        """`load_batch` of the runner: pad to the bucket, then the backend's replay metadata."""
        raw = forward_batch.batch_size
        padded = min(bucket for bucket in self.buckets if bucket >= raw)
        self.buffers.fill(forward_batch, raw, padded, self.width)
        self.runner.raw_bs, self.runner.bs = raw, padded
        self.runner.raw_num_token = raw * self.width
        self.backend.init_forward_metadata_out_graph(self._replay_view(forward_batch, raw, padded))

    def _replay_view(self, forward_batch: Any, raw: int, padded: int) -> Any:
        """What the backend is shown: the padded buffers, with the exceptions that the EAGLE runners make.

        The draft runner shows the locations of all steps, and the live lengths where nothing is padded; the
        draft-extend runner whole buffers
        (`eagle_draft_cuda_graph_runner.py` and `eagle_draft_extend_cuda_graph_runner.py`, 0.5.15 to 0.5.23).
        """
        from sglang.srt.model_executor.runner.decode_cuda_graph_runner import build_replay_fb_view

        view = releases.call(
            build_replay_fb_view,
            forward_batch=forward_batch,
            buffers=self.buffers,
            bs=padded,
            raw_bs=raw,
            num_tokens=padded * self.width,
            global_num_tokens_cpu=None,
            seq_len_fill_value=self._fill_value(),
            capture_forward_mode=self.mode,
            is_encoder_decoder=False,
        )
        names = ("seq_lens", "req_pool_indices")
        if self.drafts == "draft_decode" and raw == padded:
            view.__dict__.update({name: getattr(forward_batch, name) for name in names})
        if self.drafts == "draft_decode":
            view.out_cache_loc = self.buffers.out_cache_loc[: padded * self.locations]
        elif self.drafts == "draft_extend":
            view.__dict__.update({name: getattr(self.buffers, name) for name in names})
            view.seq_lens_cpu = None if forward_batch.seq_lens_cpu is None else self.buffers.seq_lens_cpu
        return view

    def _fill_value(self) -> int:
        """The length that a padded row is given; 0 on Ascend."""
        first = getattr(self.backend, "attn_backends", [self.backend])[0]
        return int(first.get_cuda_graph_seq_len_fill_value())


def _runner(scenario: MetadataScenario, executor: GraphExecutor, model_runner: Any) -> Any:
    """A real graph runner without its constructor, which would load a model and capture it."""
    from sglang.srt.hardware_backend.npu.graph_runner.npu_graph_runner import NPUGraphRunner
    from sglang.srt.model_executor.forward_batch_info import PPProxyTensors

    if scenario.mode == "draft_decode":
        from sglang.srt.hardware_backend.npu.graph_runner.eagle_draft_npu_graph_runner import (
            EAGLEDraftNpuGraphRunner,
        )

        runner = object.__new__(EAGLEDraftNpuGraphRunner)
        runner.speculative_num_steps = scenario.draft_tokens - 1
    elif scenario.mode == "draft_extend":
        from sglang.srt.hardware_backend.npu.graph_runner.eagle_draft_extend_npu_graph_runner import (
            EAGLEDraftExtendNpuGraphRunner,
        )

        runner = object.__new__(EAGLEDraftExtendNpuGraphRunner)
    else:
        runner = object.__new__(NPUGraphRunner)
    runner.__dict__.update(
        stands_in=True,
        model_runner=model_runner,
        attn_backend=executor.backend,
        backend=Graphs(PPProxyTensors({}), executor.captured),
        buffers=executor.buffers,
        is_dllm=False,
        if_use_v2=releases.constructed(NPUGraphRunner, "if_use_v2", model_runner=model_runner),
        use_fias_v2_bsnd=False,
        enable_pdmux=False,
        capture_forward_mode=executor.mode,
        num_tokens_per_bs=executor.width,
        captured_req_width=executor.width,
        load_batch=executor.load,
        _make_graph_key=lambda bs, *rest: bs,
    )
    if hasattr(runner, "_init_arch_map"):
        runner._init_arch_map()
    return runner
