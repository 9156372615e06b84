"""Collectives of a group of one member, over the backend `hccl`."""

from collections.abc import Callable

import pytest

from harness.npu import install

install()

import torch  # noqa: E402
from torch import distributed  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def group() -> object:
    store = distributed.HashStore()
    distributed.init_process_group("hccl", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def _tensor() -> torch.Tensor:
    return torch.tensor([1.0, 2.0], device="npu")


@pytest.mark.parametrize("collective", [distributed.all_reduce, lambda tensor: distributed.broadcast(tensor, 0)])
def test_one_member_has_the_result_in_place(collective: Callable[[torch.Tensor], object]) -> None:
    tensor = _tensor()
    collective(tensor)
    distributed.barrier()
    assert tensor.tolist() == [1, 2]


@pytest.mark.parametrize(
    "collective",
    [
        lambda into, tensor: distributed.all_gather([into], tensor),
        distributed.all_gather_single,
        distributed.reduce_scatter_single,
        distributed.all_to_all_single,
    ],
)
def test_one_member_gives_to_itself(collective: Callable[[torch.Tensor, torch.Tensor], object]) -> None:
    into = torch.zeros(2, device="npu")
    collective(into, _tensor())
    assert into.tolist() == [1, 2]


def test_a_group_of_two_is_refused() -> None:
    from harness.npu.communication import ProcessGroupHCCL

    with pytest.raises(RuntimeError, match="a group of 2 was asked for"):
        ProcessGroupHCCL(None, 0, 2)
