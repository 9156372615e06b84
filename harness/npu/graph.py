"""NPU graphs: device work that is recorded once and replayed on the same memory, with host inputs that can be rebound.

What torch_npu 2.14 does in `torch_npu/npu/graphs.py`, as far as it decides what is computed:

* Capture records work and does not run it. Host inputs of operators, such as lists of lengths, are copied then.
* With ``auto_dispatch_capture``, the operators of `UPDATABLE` wait in the graph for an event of their own, which each
  replay consumes; `NPUGraph.update` binds their host inputs anew and records the events. A key that an operator does
  not know is ignored, and that operator runs again with the input that it had.
* Without it, host inputs stay what they were at capture.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import TracebackType
from typing import Any, Self

from harness.npu import fault, stream
from harness.npu.stream import ExternalEvent, Stream, Work

#: Operators whose host inputs can be rebound, and the keys under which they can (`torch_npu/npu/_npugraph_handlers`).
UPDATABLE: dict[str, tuple[str, ...]] = {
    "npu_fused_infer_attention_score": ("actual_seq_lengths", "actual_seq_lengths_kv"),
    "npu_fused_infer_attention_score_v2": ("actual_seq_qlen", "actual_seq_kvlen"),
    "_npu_paged_attention": ("context_lens",),
    "npu_multi_head_latent_attention": ("context_lens",),
}

_capturing: "NPUGraph | None" = None


def capturing() -> "NPUGraph | None":
    """The graph that work is being recorded into."""
    return _capturing


class HostInputs:
    """The host inputs of one recorded operator call, by name, and the event that the call waits for."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self.inputs = {name: deepcopy(value) for name, value in inputs.items()}
        self.bound = ExternalEvent()

    def bind(self, inputs: Mapping[str, Any]) -> None:
        """Replace those of `inputs` that the call has, and let it run once; TypeError for what is no list any more.

        An operator's schema has `SymInt[]` there (torch_npu documents it so), for which torch takes no tensor.
        """
        for name, value in inputs.items():
            if isinstance(self.inputs.get(name), list) and not isinstance(value, list | tuple):
                raise TypeError(f"{name} must be a list of integers, as it was when captured: {type(value).__name__}")
        self.inputs.update({name: deepcopy(value) for name, value in inputs.items() if name in self.inputs})
        self.bound.record()


class NPUGraph:
    """A captured sequence of device work."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.auto_dispatch_capture = False
        self._work: list[Work] = []
        self._updatable: list[HostInputs] = []

    def record(self, work: Work) -> None:
        """Add work to what a replay runs."""
        self._work.append(work)

    def record_call(
        self, operator: str, host_inputs: Mapping[str, Any], call: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Add an operator's `call`, which is given the host inputs that are bound when it runs."""
        inputs = HostInputs(host_inputs)
        if self.auto_dispatch_capture and operator in UPDATABLE:
            self._updatable.append(inputs)
            self.record(inputs.bound.consume)
        self.record(lambda: call(inputs.inputs))

    def replay(self) -> None:
        """Submit the captured work to the current stream."""
        fault.refuse_after_fault("torch.npu.NPUGraph.replay")
        current = stream.current_stream()
        for work in self._work:
            current.submit(work)

    def update(self, cpu_update_input: Sequence[Mapping[str, Any]]) -> None:
        """Bind host inputs anew: one mapping for all updatable operators, or one each, in the order of capture."""
        if not self.auto_dispatch_capture:
            raise RuntimeError("NPUGraph.update: the graph was captured without auto_dispatch_capture=True")
        inputs = list(cpu_update_input) * (len(self._updatable) if len(cpu_update_input) == 1 else 1)
        if len(inputs) != len(self._updatable):
            raise RuntimeError(
                f"NPUGraph.update: {len(self._updatable)} captured operators can be updated, "
                f"but cpu_update_input has {len(inputs)} entries"
            )
        # Assumption: the inputs are read when update is called, and the operators are let through one by one.
        for operator, bound in zip(self._updatable, inputs, strict=True):
            operator.bind(bound)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Record the work that follows, of whatever stream, in program order."""
        global _capturing
        if _capturing is not None:
            raise RuntimeError("NPUGraph.capture_begin: another graph is being captured")
        self._work, self._updatable = [], []
        _capturing = self

    def capture_end(self) -> None:
        """Record no more."""
        global _capturing
        _capturing = None

    def pool(self) -> tuple[int, int]:
        """The memory pool of the graph: there is one."""
        return graph_pool_handle()

    def reset(self) -> None:
        """Forget the captured work."""
        self._work, self._updatable = [], []


class graph:  # noqa: N801 - the name is torch_npu's
    """Captures the work of its body, which runs once in Python, into an `NPUGraph`."""

    _stream: Stream | None = None

    def __init__(
        self,
        npu_graph: NPUGraph,
        pool: Any = None,
        stream: Stream | None = None,
        auto_dispatch_capture: bool = False,
        capture_error_mode: str = "global",
    ) -> None:
        self.npu_graph = npu_graph
        npu_graph.auto_dispatch_capture = auto_dispatch_capture
        if stream is None:
            stream = graph._stream = graph._stream or Stream()
        self.stream = stream

    def __enter__(self) -> Self:
        stream.synchronize()
        self.stream.__enter__()
        self.npu_graph.capture_begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.npu_graph.capture_end()
        self.stream.__exit__(kind, error, trace)


def graph_pool_handle() -> tuple[int, int]:
    """A handle that makes graphs share memory. Assumption: none do, since the CPU allocator has no pools."""
    return (0, 0)
