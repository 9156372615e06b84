"""Copies between host and device, and what may not be mixed."""

from collections.abc import Callable

import numpy as np
import torch

from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device

#: Enough bytes for a copy to take a while.
COUNT = 1 << 22

PAGEABLE = Rule("dispatch.py", "Assumption: a copy from pageable memory has")
MIXED = Rule("dispatch.py", "expected all tensors to be on the same device")


def from_pageable(device: Device) -> Values:
    """The source changes as soon as the asynchronous copy has returned."""
    source = torch.ones(COUNT)
    there = source.to("npu", non_blocking=True)
    source.fill_(9)
    return device.wait_for({"sum": there.sum()})


def to_pageable(device: Device) -> Values:
    """The copy is looked at as soon as it has returned, behind other work of the device."""
    there = torch.ones(COUNT, device="npu")
    for _ in range(8):
        there = there * 1
    host = torch.zeros(COUNT).copy_(there, non_blocking=True)
    return {"sum": host.sum()}


def apart(device: Device) -> Values:
    """Source and copy change after a copy either way."""
    source = torch.ones(4)
    there = source.to("npu")
    source.fill_(5)
    back = there.cpu()
    there.fill_(7)
    return device.wait_for({"source": source, "there": there, "back": back})


def mixed(device: Device) -> Values:
    """A tensor on the host beside one on the device."""
    return device.wait_for({"sum": torch.cat([torch.ones(4, device="npu"), torch.ones(4)])})


def _case(name: str, rule: Rule, run: Callable[[Device], Values], **expected: float) -> Case:
    wanted = {key: np.array(value) for key, value in expected.items()}
    return Case(f"memory: {name}", (), rule, run, (lambda: dict(wanted)) if wanted else None)


def _four(value: float) -> np.ndarray:
    return np.full(4, value)


CASES = (
    _case("a copy from pageable memory has read its source when it returns", PAGEABLE, from_pageable, sum=COUNT),
    _case("a copy to pageable memory has been done when it returns", PAGEABLE, to_pageable, sum=COUNT),
    Case("memory: a copy shares nothing with its source", (), Rule("memory.py", "which no host tensor shares"), apart,
         lambda: {"source": _four(5), "there": _four(7), "back": _four(1)}),
    _case("host and device are not mixed", MIXED, mixed),
)  # fmt: skip
