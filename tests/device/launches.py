"""Triton kernels, in Triton's interpreter, over device memory."""

import weakref

import pytest

from harness.npu import install

install()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from harness.npu.interleaving import late  # noqa: E402


@triton.jit
def _double(source, into, count, BLOCK: tl.constexpr):  # noqa: N803
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < count
    tl.store(into + places, tl.load(source + places, mask=mask) * 2, mask=mask)


def test_a_kernel_reads_and_writes_device_memory() -> None:
    source = torch.arange(5, device="npu")
    into = torch.full((8,), -1, device="npu")
    _double[(2,)](source, into[1:], 5, BLOCK=4)

    assert into.tolist() == [-1, 0, 2, 4, 6, 8, -1, -1]


def test_a_launch_is_work_of_its_stream() -> None:
    side = torch.npu.Stream()
    source, into = torch.arange(5, device="npu"), torch.zeros(5, dtype=torch.int64, device="npu")
    with late(side):
        with torch.npu.stream(side):
            _double[(1,)](source, into, 5, BLOCK=8)
        assert into.tolist() == [0] * 5
        side.synchronize()
        assert into.tolist() == [0, 2, 4, 6, 8]


def test_a_launch_can_be_captured() -> None:
    source, into = torch.zeros(3, dtype=torch.int64, device="npu"), torch.full((3,), -1, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        _double[(1,)](source, into, 3, BLOCK=4)
    assert into.tolist() == [-1] * 3
    source.fill_(4)
    graph.replay()
    assert into.tolist() == [8] * 3


def test_a_launch_on_both_memories_fails() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        _double[(1,)](torch.arange(5), torch.zeros(5, device="npu"), 5, BLOCK=8)


@triton.jit
def _read_at(addresses, into):
    tl.store(into, tl.load(tl.load(addresses).to(tl.pointer_type(tl.int64))))


def test_memory_whose_address_a_late_launch_has_is_there_until_it_has_run() -> None:
    side = torch.npu.Stream()
    source, into = torch.full((1,), 7, device="npu"), torch.zeros(1, dtype=torch.int64, device="npu")
    with late(side):
        with torch.npu.stream(side):
            addresses = torch.tensor([source.data_ptr()], dtype=torch.uint64).to("npu", non_blocking=True)
            _read_at[(1,)](addresses, into)
        memory = weakref.ref(source.untyped_storage())
        del source
        assert memory() is not None
    assert into.tolist() == [7]
    assert memory() is None
