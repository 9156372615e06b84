"""HCCL, the NPU's library of collectives. There is one device, so a group has one member, which already has its result.

Each collective is a copy from the member to itself, on its current stream; torch.distributed does the rest.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

_c10d: Any = torch._C._distributed_c10d

BACKEND = "hccl"


class HcclOptions:
    """`ProcessGroupHCCL.Options`. Assumption: buffer sizes, the only option that sglang sets, change speed only."""

    def __init__(self) -> None:
        self.hccl_config: dict[str, Any] = {}


class ProcessGroupHCCL(_c10d.ProcessGroup):  # type: ignore[misc]
    """A group of one member."""

    Options = HcclOptions

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta | None = None) -> None:
        super().__init__(rank, size)
        if size != 1:
            raise RuntimeError(f"hccl: a group of {size} was asked for, but there is one emulated NPU: use a size of 1")

    def getBackendName(self) -> str:  # noqa: N802 - torch's names, here and below
        """The name that torch shows."""
        return BACKEND

    def allreduce(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """The sum over one member."""
        return _done(tensors)

    def broadcast(self, tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """The tensors of the only member."""
        return _done(tensors)

    def barrier(self, opts: Any = None) -> Any:
        """Nobody to wait for."""
        return _done([])

    def allgather(self, into: list[list[torch.Tensor]], tensors: list[torch.Tensor], opts: Any = None) -> Any:
        """The tensors of the only member, each as a list of one."""
        return _copied(zip((made[0] for made in into), tensors, strict=True))

    def all_gather_single(self, into: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The tensor of the only member."""
        return _copied([(into, tensor)])

    def reduce_scatter_single(self, into: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        """The only part of the sum over one member."""
        return _copied([(into, tensor)])

    def all_to_all_single(
        self, into: torch.Tensor, tensor: torch.Tensor, into_sizes: Any, sizes: Any, opts: Any = None
    ) -> Any:
        """What the only member sends to itself."""
        return _copied([(into, tensor)])


def _done(results: list[torch.Tensor]) -> Any:
    """Work that its stream has been given, so that there is nothing to wait for: later work runs after it anyway."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(results)
    return _c10d._create_work_from_future(future)


def _copied(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    return _done([into.copy_(tensor.view_as(into)) for into, tensor in pairs])


def activate() -> None:
    """Let torch make process groups of the backend ``hccl``."""
    distributed.Backend.register_backend(BACKEND, ProcessGroupHCCL, devices=["npu"])
