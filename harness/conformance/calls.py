"""Cases that call one operator once: its name, its arguments as data, and what must come of it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device

#: Arguments by name: device tensors, `Host` tensors, and numbers, lists and text for the host.
Arguments = Mapping[str, Any]
Expected = dict[str, np.ndarray | str]


class Call(NamedTuple):
    """One call of `operator`; its `written` arguments are the result, or else what it returns."""

    operator: str
    arguments: Callable[[], Arguments]
    written: tuple[str, ...] = ()
    #: Of a Triton kernel.
    grid: tuple[int, ...] = ()
    #: Names for what it returns, in order; what has none is not looked at.
    returned: tuple[str | None, ...] = ("output",)

    def __call__(self, device: Device) -> Values:
        """Call it and wait."""
        given = device.placed(self.arguments())
        operator = device.operator(self.operator)
        returned = operator[self.grid](*given.values()) if self.grid else operator(**given)
        results = {name: given[name] for name in self.written}
        if not results:
            several = (returned,) if isinstance(returned, torch.Tensor) else returned
            results = {name: one for name, one in zip(self.returned, several, strict=False) if name}
        return device.wait_for(results)


def accepted(name: str, rule: Rule, call: Call, expected: Callable[[], Expected]) -> Case:
    """A call whose results are those of a reference."""
    return Case(name, (call.operator,), rule, call.__call__, expected)


def refused(name: str, rule: Rule, call: Call) -> Case:
    """A call that the device's tiling refuses, before anything runs."""
    return Case(name, (call.operator,), rule, call.__call__, None)
