"""The counter of synchronisations names reason and call site."""

from collections.abc import Callable

import pytest

from harness.npu import install

install()

import torch  # noqa: E402

from harness.npu.synchronisation import counting  # noqa: E402


@pytest.mark.parametrize(
    ("reason", "wait"),
    [
        ("aten::_local_scalar_dense", lambda t: t[0].item()),
        ("aten::_copy_from", lambda t: t.cpu()),
        ("aten::_copy_from", lambda t: t.tolist()),
        ("aten::nonzero", lambda t: t[t > 0]),
        ("aten::equal", lambda t: torch.equal(t, t)),
        ("torch.npu.synchronize", lambda t: torch.npu.synchronize()),
        ("torch.npu.Stream.synchronize", lambda t: torch.npu.current_stream().synchronize()),
    ],
)
def test_what_waits_is_counted_where_it_is_called(reason: str, wait: Callable[[torch.Tensor], object]) -> None:
    tensor = torch.tensor([1, 2], device="npu")
    with counting() as counter:
        wait(tensor)

    assert [(noted.reason, noted.site.rpartition(":")[0]) for noted in counter] == [
        (reason, "device/synchronisation.py")
    ]
    assert list(counter.values()) == [1]


def test_work_that_stays_on_the_device_is_not_counted() -> None:
    tensor = torch.tensor([1, 2], device="npu")
    with counting() as counter:
        tensor.add_(1).cumsum(0).to(torch.int32)
        tensor.to("cpu", non_blocking=True)
        torch.tensor([3], device="npu")

    assert not counter


def test_two_calls_at_one_line_are_two_counts() -> None:
    tensor = torch.tensor([1, 2], device="npu")
    with counting() as counter:
        for _ in range(2):
            tensor.tolist()

    assert list(counter.values()) == [2]
    with counting() as later:
        pass
    assert not later


def test_an_operator_that_needs_a_list_from_the_device_waits_for_it() -> None:
    lengths = torch.tensor([1], dtype=torch.int32, device="npu")
    pages = torch.ones(1, 16, 64, device="npu")
    with counting() as counter:
        torch.ops.npu.npu_fused_infer_attention_score(
            torch.ones(1, 1, 64, device="npu"), pages, pages, num_heads=1, input_layout="TND", block_size=16,
            block_table=torch.zeros(1, 1, dtype=torch.int32, device="npu"), actual_seq_lengths=[1],
            actual_seq_lengths_kv=lengths,
        )  # fmt: skip

    assert [noted.reason for noted in counter] == ["npu_fused_infer_attention_score: actual_seq_lengths_kv"]
