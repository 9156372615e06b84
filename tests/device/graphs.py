"""Graphs: recorded work runs again on the same memory, with the host inputs that are bound then."""

import threading
from collections.abc import Callable

import pytest

from harness.npu import install

install()

import torch  # noqa: E402

from harness.npu import fault  # noqa: E402
from harness.npu import stream as streams  # noqa: E402

HEADS, SIZE, PAGE = 2, 128, 16


def _captured(body: Callable[[], object], updatable: bool = False) -> torch.npu.NPUGraph:
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=updatable):
        body()
    return graph


def test_capture_records_and_does_not_run() -> None:
    value = torch.zeros(2, device="npu")
    graph = _captured(lambda: value.add_(1))
    assert value.tolist() == [0, 0]

    graph.replay()
    graph.replay()
    assert value.tolist() == [2, 2]


def test_a_replay_reads_what_its_inputs_hold_by_then() -> None:
    source, results = torch.zeros(3, device="npu"), {}

    def body() -> None:
        doubled = source * 2
        results["sum"] = doubled[1:].sum()
        results["best"] = torch.cat([doubled, -doubled]).view(2, 3).argmax(-1)

    graph = _captured(body)
    source.copy_(torch.tensor([1.0, 2.0, 3.0]))
    graph.replay()
    assert (results["sum"].item(), results["best"].tolist()) == (10.0, [2, 0])
    source.copy_(torch.tensor([9.0, 1.0, 0.0]))
    graph.replay()
    assert (results["sum"].item(), results["best"].tolist()) == (2.0, [0, 2])


@pytest.mark.parametrize("wait", [lambda t: t.item(), lambda t: t.cpu(), lambda t: t.nonzero()])
def test_the_host_cannot_wait_during_capture(wait: Callable[[torch.Tensor], object]) -> None:
    value = torch.zeros(1, device="npu")
    with pytest.raises(RuntimeError, match="while a graph is being captured"):
        _captured(lambda: wait(value))
    assert not torch.npu.is_current_stream_capturing()


class _Attention:
    """A decode of one request over two pages, whose keys are 0 and whose values are their positions."""

    def __init__(self) -> None:
        self.query = torch.ones(1, HEADS, SIZE, device="npu")
        self.key = torch.zeros(2, PAGE, SIZE, device="npu")
        self.value = torch.arange(2 * PAGE, device="npu").view(2, PAGE, 1).expand(2, PAGE, SIZE).float().contiguous()
        self.table = torch.tensor([[0, 1]], dtype=torch.int32, device="npu")
        self.lengths = [1]

    def run(self) -> None:
        self.output, _ = torch.ops.npu.npu_fused_infer_attention_score(
            self.query, self.key, self.value, num_heads=HEADS, num_key_value_heads=1, input_layout="TND",
            block_size=PAGE, block_table=self.table, actual_seq_lengths=[1], actual_seq_lengths_kv=self.lengths,
        )  # fmt: skip

    def mean_position(self) -> float:
        return float(self.output.mean())


def test_update_rebinds_host_lengths() -> None:
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    for length in (9, 21):
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [length]}])
        graph.replay()
        assert attention.mean_position() == pytest.approx((length - 1) / 2)


def test_a_list_that_changes_after_the_update_is_not_read_again() -> None:
    attention, lengths = _Attention(), [9]
    graph = _captured(attention.run, updatable=True)
    graph.update(cpu_update_input=[{"actual_seq_lengths_kv": lengths}])
    lengths[0] = 21
    graph.replay()

    assert attention.mean_position() == pytest.approx(4)


def test_a_replay_waits_for_the_update_of_another_thread() -> None:
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    graph.replay()
    updating = threading.Thread(target=graph.update, args=([{"actual_seq_lengths_kv": [21]}],))
    updating.start()
    updating.join()

    assert attention.mean_position() == pytest.approx(10)


def test_a_replay_that_nobody_updates_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "PATIENCE", 0.0)
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    graph.replay()
    with pytest.raises(RuntimeError, match=r"replayed without NPUGraph\.update"):
        attention.mean_position()
    graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [21]}])
    assert attention.mean_position() == pytest.approx(10)


def test_host_lengths_are_frozen_without_automatic_dispatch() -> None:
    attention = _Attention()
    graph = _captured(attention.run)
    attention.lengths[0] = 21
    graph.replay()

    assert attention.mean_position() == 0
    with pytest.raises(RuntimeError, match="auto_dispatch_capture"):
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [21]}])


def test_a_key_that_the_operator_does_not_know_leaves_the_lengths_of_capture() -> None:
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    graph.update(cpu_update_input=[{"actual_seq_kvlen": [21]}])
    graph.replay()

    assert attention.mean_position() == 0


def test_a_list_of_lengths_is_not_replaced_by_a_tensor() -> None:
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    with pytest.raises(TypeError, match="actual_seq_lengths_kv must be a list of integers"):
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": torch.tensor([21])}])


def test_updates_of_another_number_than_the_operators_are_refused() -> None:
    attention = _Attention()
    graph = _captured(attention.run, updatable=True)
    with pytest.raises(RuntimeError, match="1 captured operators can be updated, but cpu_update_input has 2"):
        graph.update(cpu_update_input=[{}, {}])


def test_operators_that_write_run_in_the_replay_only() -> None:
    cache = torch.zeros(2, PAGE, 1, SIZE, device="npu")
    rows, slots = torch.ones(1, 1, SIZE, device="npu"), torch.tensor([3], dtype=torch.int32, device="npu")
    import torch_npu

    graph = _captured(lambda: torch_npu._npu_reshape_and_cache(rows, rows, cache, cache.clone(), slots))
    assert cache.sum().item() == 0
    slots.fill_(20)
    graph.replay()
    assert cache.view(-1, SIZE)[20].tolist() == [1.0] * SIZE
    assert cache.sum().item() == SIZE


def test_a_fault_in_a_replay_ends_it_there() -> None:
    attention, after = _Attention(), torch.zeros(1, device="npu")

    def body() -> None:
        attention.run()
        after.add_(1)

    graph = _captured(body, updatable=True)
    graph.replay()
    with pytest.raises(fault.DeviceFault, match="507015"):
        graph.update(cpu_update_input=[{"actual_seq_lengths_kv": [99]}])
    with pytest.raises(fault.DeviceFault, match="507015"):
        torch.npu.current_stream().submit(lambda: None)
    fault.reset()
    graph.reset()
    after.add_(0)
    assert after.item() == 0


def test_one_graph_is_captured_at_a_time() -> None:
    outer = torch.npu.NPUGraph()
    with torch.npu.graph(outer), pytest.raises(RuntimeError, match="another graph"):
        torch.npu.NPUGraph().capture_begin()


def test_a_graph_captured_in_inference_mode_is_replayed_outside_it() -> None:
    with torch.inference_mode():
        value = torch.zeros(2, device="npu")
        graph = _captured(lambda: value[:1].add_(1))
    graph.replay()
    assert value.tolist() == [1, 0]


def test_memory_that_is_filled_after_capture_is_not_looked_at_during_it() -> None:
    positions = torch.full((1,), -7, device="npu")  # no position: an operator that read it would stop the device
    cache = torch.cat([torch.zeros(2, 4), torch.ones(2, 4)], -1).to("npu")
    rows = torch.ones(1, 8, device="npu")
    turned = []
    graph = _captured(lambda: turned.extend(torch.ops.npu.npu_mrope(positions, rows, rows, cache, 8)))
    positions.fill_(1)
    graph.replay()
    assert turned[0].tolist() == [[-1] * 4 + [1] * 4]


def test_a_tensor_that_an_operator_does_not_name_is_not_waited_for() -> None:
    attention = _Attention()
    graph = _captured(
        lambda: torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace(
            attention.query,
            attention.key,
            attention.value,
            num_heads=HEADS,
            num_key_value_heads=1,
            input_layout="TND",
            block_size=PAGE,
            block_table=attention.table,
            actual_seq_lengths=[1],
            actual_seq_lengths_kv=[1],
        )
    )
    graph.replay()
