"""An emulated operator as torch offers operators: callable itself, and by the names of its overloads."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch

from harness.npu import fault
from harness.npu.arguments import Arguments
from harness.npu.registry import emulates


class Operator:
    """An operator that refuses to run once the device has stopped."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.__name__ = self.__qualname__ = compute.__name__
        self.__doc__ = compute.__doc__
        self._compute = compute

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator, unless the device has stopped."""
        fault.refuse_after_fault(self.__name__)
        return self._compute(*args, **kwargs)

    @property
    def default(self) -> Self:
        """The overload that makes its results."""
        return self


class AttentionOperator(Operator):
    """An operator that also has an overload which writes its two results into given tensors."""

    def out(
        self, *args: Any, out: Sequence[torch.Tensor], workspace: torch.Tensor | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write attention and softmax sums to `out`. Assumption: any workspace is large enough."""
        made = self(*args, **kwargs)
        arguments = Arguments(self.__name__)
        for name, result, into in zip(("attention_out", "softmax_lse"), made, out, strict=True):
            arguments.require_shape(into.shape == result.shape, name, into, f"it must be {list(result.shape)}")
            into.copy_(result)
        return out[0], out[1]


def operator(compute: Callable[..., Any]) -> Operator:
    """Register a function as the operator of its name."""
    return emulates(f"npu.{compute.__name__}")(Operator(compute))


def attention_operator(compute: Callable[..., Any]) -> AttentionOperator:
    """Register a function, which returns attention and softmax sums, as the operator of its name."""
    return emulates(f"npu.{compute.__name__}")(AttentionOperator(compute))
