"""Captured graphs: what a replay computes, by what its host inputs are at capture, at update and at replay.

Keys are zero and values are their positions, so that attention over L positions is (L - 1) / 2, exactly.
"""

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from harness.conformance.attention import FUSED
from harness.conformance.batch import SCALE
from harness.conformance.calls import Expected
from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device

PAGE, HEADS, WIDTH = 128, 2, 128
CAPTURED = 1
KEY = "actual_seq_lengths_kv"

BOUND = Rule("graph.py", "Assumption: the inputs are read when update is called")
RECORDED = Rule("graph.py", "Capture records work and does not run it")
FROZEN = Rule("graph.py", "host inputs stay what they were at capture")
WAITING = Rule("graph.py", "wait in the graph for an event of their own")
FIXED = Rule("graph.py", "the graph was captured without auto_dispatch_capture")
UNKNOWN = Rule("graph.py", "A key that an operator does")
COUNTED = Rule("graph.py", "captured operators can be updated")


class Captured(NamedTuple):
    """A graph of one decode, the list it was given at capture, and the memory that it reads and writes."""

    graph: Any
    device: Device
    lengths: list[int]
    table: torch.Tensor
    value: torch.Tensor
    output: torch.Tensor

    def update(self, *lengths: int, key: str = KEY) -> None:
        """Bind new lengths, one entry for each captured operator."""
        self.graph.update(cpu_update_input=[{key: [length]} for length in lengths])

    def mean(self) -> torch.Tensor:
        """The mean position that was attended to, once the device is done."""
        return self.device.wait_for({"mean": self.output.float().mean()})["mean"]


def capture(device: Device, updatable: bool) -> Captured:
    """Run the decode once, as operators are to be compiled by then, and capture it; its output is zero again."""
    query = torch.ones(1, 1, HEADS * WIDTH, dtype=torch.float16)
    positions = torch.arange(2 * PAGE).view(2, PAGE, 1).expand(2, PAGE, WIDTH).half()
    given = device.placed(
        {
            "query": query,
            "key": torch.zeros_like(positions),
            "value": positions.contiguous(),
            "block_table": torch.tensor([[0, 1]], dtype=torch.int32),
            "num_heads": HEADS,
            "num_key_value_heads": 1,
            "input_layout": "BSH",
            "scale": SCALE,
            "block_size": PAGE,
        }
    )
    lengths, output = [CAPTURED], torch.zeros_like(given["query"])
    operator, sums = device.operator(FUSED), torch.empty(1, dtype=torch.float16, device="npu")
    workspace = device.operator("npu._npu_fused_infer_attention_score_get_max_workspace")(
        **given, actual_seq_lengths_kv=lengths
    )

    def decode() -> None:
        operator.out(**given, actual_seq_lengths_kv=lengths, workspace=workspace, out=[output, sums])

    decode()
    device.synchronize()
    output.zero_()
    npu: Any = torch.npu  # type: ignore[attr-defined]
    graph = npu.NPUGraph()
    with npu.graph(graph, auto_dispatch_capture=updatable):
        decode()
    output.add_(1000)
    return Captured(graph, device, lengths, given["block_table"], given["value"], output)


def capturing_does_not_run(device: Device) -> Values:
    """What the output holds is left alone until a replay."""
    return {"mean": capture(device, updatable=True).mean()}


def frozen(device: Device) -> Values:
    """The list that was given changes after capture, in a graph without automatic dispatch."""
    captured = capture(device, updatable=False)
    captured.lengths[0] = 21
    captured.graph.replay()
    return {"mean": captured.mean()}


def update_first(device: Device) -> Values:
    """Twice: update, then replay."""
    captured, values = capture(device, updatable=True), {}
    for length in (9, 201):
        captured.update(length)
        captured.graph.replay()
        values[str(length)] = captured.mean()
    return values


def replay_first(device: Device) -> Values:
    """Twice: replay, then update in another thread, as sglang's graph runner does."""
    captured, values = capture(device, updatable=True), {}
    for length in (9, 201):
        updating = threading.Thread(target=captured.update, args=(length,))
        captured.graph.replay()
        updating.start()
        updating.join()
        values[str(length)] = captured.mean()
    return values


def list_changed_after_update(device: Device) -> Values:
    """The caller's own list changes between the update and the replay."""
    captured, lengths = capture(device, updatable=True), [9]
    captured.graph.update(cpu_update_input=[{KEY: lengths}])
    lengths[0] = 201
    captured.graph.replay()
    return {"mean": captured.mean()}


def unknown_key(device: Device) -> Values:
    """The key of the second version of the operator."""
    captured = capture(device, updatable=True)
    captured.update(201, key="actual_seq_kvlen")
    captured.graph.replay()
    return {"mean": captured.mean()}


def too_many_entries(device: Device) -> Values:
    """Two entries for one captured operator."""
    captured = capture(device, updatable=True)
    captured.update(9, 201, 201)
    return {"mean": captured.mean()}


def not_updatable(device: Device) -> Values:
    """An update of a graph that was captured without automatic dispatch."""
    captured = capture(device, updatable=False)
    captured.update(9)
    return {"mean": captured.mean()}


def device_inputs(device: Device) -> Values:
    """The block table and the values change on the device after capture: a replay reads what they hold by then."""
    captured = capture(device, updatable=True)
    captured.table.copy_(torch.tensor([[1, 0]], dtype=torch.int32).to("npu"))
    captured.value.mul_(2)
    captured.update(9)
    captured.graph.replay()
    return {"mean": captured.mean()}


def attended(length: int) -> np.ndarray:
    """The mean position of the first `length`."""
    return np.array((length - 1) / 2)


def _expected(**means: np.ndarray) -> Callable[[], Expected]:
    return lambda: dict(means)


_BOTH = {"9": attended(9), "201": attended(201)}
_GRAPHS: tuple[tuple[str, Rule, Callable[[Device], Values], Callable[[], Expected] | None], ...] = (
    ("capture records and does not run", RECORDED, capturing_does_not_run, _expected(mean=np.array(1000.0))),
    ("host inputs are frozen without automatic dispatch", FROZEN, frozen, _expected(mean=attended(CAPTURED))),
    ("a replay after an update has its lengths", BOUND, update_first, lambda: dict(_BOTH)),
    ("a replay before an update waits for its lengths", WAITING, replay_first, lambda: dict(_BOTH)),
    ("a list that changes after the update is not read again", BOUND, list_changed_after_update,
     _expected(mean=attended(9))),
    ("a key that the operator does not know is ignored", UNKNOWN, unknown_key, _expected(mean=attended(CAPTURED))),
    ("an update with more entries than operators is refused", COUNTED, too_many_entries, None),
    ("an update without automatic dispatch is refused", FIXED, not_updatable, None),
    ("a replay reads what its device inputs hold by then", RECORDED, device_inputs,
     _expected(mean=np.array(2 * (PAGE + 4.0)))),
)  # fmt: skip

CASES = tuple(Case(f"graph: {name}", (FUSED,), rule, run, expected) for name, rule, run, expected in _GRAPHS)
