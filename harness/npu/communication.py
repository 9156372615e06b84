"""HCCL, the NPU's library of collectives: there is one device, so groups have one member, and gloo serves them."""

from datetime import timedelta
from typing import Any

from torch import distributed

BACKEND = "hccl"


class HcclOptions:
    """`ProcessGroupHCCL.Options`. Assumption: buffer sizes, the only option that sglang sets, change speed only."""

    def __init__(self) -> None:
        self.hccl_config: dict[str, Any] = {}


class ProcessGroupHCCL:
    """The name under which sglang finds the options."""

    Options = HcclOptions


def _create(store: Any, rank: int, size: int, timeout: timedelta) -> Any:
    if size != 1:
        raise RuntimeError(f"hccl: a group of {size} was asked for, but there is one emulated NPU: use a size of 1")
    return distributed.ProcessGroupGloo(store, rank, size, timeout=timeout)


def activate() -> None:
    """Let torch make process groups of the backend ``hccl``."""
    if distributed.is_available():
        distributed.Backend.register_backend(BACKEND, _create, devices=["npu", "cpu"])
