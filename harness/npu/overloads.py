"""An emulated operator as torch offers operators: callable itself, and by the names of its overloads.

The function that computes gets plain CPU tensors over the memory of those on the device, now or when its stream or a
replayed graph gets to it. It never sees a tensor on the device.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch

from harness.npu import fault, graph
from harness.npu.arguments import Arguments
from harness.npu.dispatch import Views, deferring, submit, synchronise
from harness.npu.memory import HOST, is_on_device
from harness.npu.registry import emulates

_TENSORS = (torch.Tensor, torch.Tensor | None)


class Operator:
    """An operator over device memory, which refuses to run once the device has stopped.

    `results` names what it makes, where a caller can give the memory for it. `writes` says that it makes no tensors but
    changes given ones; it then returns the argument named `returns`, or None.
    """

    results: tuple[str, ...] = ()

    def __init__(self, compute: Callable[..., Any], writes: bool = False, returns: str | None = None) -> None:
        self.__name__ = self.__qualname__ = compute.__name__
        self.__doc__ = compute.__doc__
        self._compute = compute
        self._writes = writes
        self._returns = returns
        self._signature = inspect.signature(compute)
        #: Arguments that are tensors; all others are the host's, and can be rebound in a captured graph.
        self._tensors = frozenset(
            name for name, parameter in self._signature.parameters.items() if parameter.annotation in _TENSORS
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator, or have it run where work is recorded or held back."""
        fault.refuse_after_fault(self.__name__)
        views = Views(self.__name__)
        given = self._given(views, args, kwargs)
        if not views.pairs:
            return self._run(given)
        if not deferring():
            return views.back(self._run(given))
        if self._writes:
            self._later(given)
            return views.back(given[self._returns]) if self._returns else None
        made = self._empty_results(given)
        self._later(given, made)
        return views.back(made)

    def _given(self, views: Views, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, tensors as views; refuses tensors that are in the wrong memory."""
        bound = self._signature.bind(*args, **kwargs).arguments
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                bound.update(bound.pop(name, {}))
        given = {}
        for name, value in bound.items():
            if name in self._tensors:
                given[name] = views.of(value)
            elif is_on_device(value):
                synchronise(f"{self.__name__}: {name}")  # the host needs the numbers
                given[name] = views.of(value)
            else:
                given[name] = value
        self._refuse_host_tensors(views)
        return given

    def _refuse_host_tensors(self, views: Views) -> None:
        views.refuse_mixture()
        if views.on_host and torch._C._get_privateuse1_backend_name() == "npu":
            raise RuntimeError(
                f"{self.__name__}: there is no kernel for tensors on the host, such as one of shape "
                f"{list(views.on_host[0].shape)}: move them to the device"
            )

    def _run(self, given: dict[str, Any]) -> Any:
        # Inside `with torch.device("npu")` the tensors that a computation makes for itself would lie on the device.
        with torch._C.DisableTorchFunction():
            return self._compute(**given)

    def _later(self, given: dict[str, Any], made: Any = None) -> None:
        """Submit the call; `made` are tensors to be filled with its results."""

        def call(host_inputs: Mapping[str, Any]) -> None:
            self._fill(made, self._run({**given, **host_inputs}))

        host_inputs = {name: value for name, value in given.items() if name not in self._tensors}
        captured = graph.capturing()
        if captured is not None:
            captured.record_call(self.__name__, host_inputs, call)
        else:
            submit(lambda: call(host_inputs))

    def _empty_results(self, given: dict[str, Any]) -> Any:
        """Tensors like the results, found by computing them: an operator that changes nothing can be run for it."""
        return self._run(given)

    def _fill(self, made: Any, results: Any) -> None:
        """Copy `results` into the tensors that stand for them."""
        if made is None:
            return
        for number, (into, result) in enumerate(zip(_several(made), _several(results), strict=True)):
            name = self.results[number] if self.results else "the result"
            Arguments(self.__name__).require_shape(
                into.shape == result.shape, name, into, f"it must be {list(result.shape)}"
            )
            into.copy_(result)

    @property
    def default(self) -> Self:
        """The overload that makes its results."""
        return self


class AttentionOperator(Operator):
    """An operator that makes attention and softmax sums, and has an overload which writes them into given tensors."""

    results = ("attention_out", "softmax_lse")

    def out(
        self, *args: Any, out: Sequence[torch.Tensor], workspace: torch.Tensor | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write attention and softmax sums to `out`. Assumption: any workspace is large enough."""
        fault.refuse_after_fault(self.__name__)
        views = Views(self.__name__)
        given = self._given(views, args, kwargs)
        made = [views.of(tensor) for tensor in out]
        self._refuse_host_tensors(views)
        if deferring():
            self._later(given, made)
        else:
            self._fill(made, self._run(given))
        return out[0], out[1]

    def _empty_results(self, given: dict[str, Any]) -> Any:
        # Assumption: values are as wide as queries, as they are wherever sglang captures attention.
        return torch.empty_like(given["query"]), torch.empty(1, device=HOST)


def _several(tensors: Any) -> Sequence[torch.Tensor]:
    return (tensors,) if isinstance(tensors, torch.Tensor) else tensors


def operator(compute: Callable[..., Any]) -> Operator:
    """Register a function that makes tensors, and changes none, as the operator of its name."""
    return emulates(f"npu.{compute.__name__}")(Operator(compute))


def writing_operator(returns: str | None = None) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function that changes tensors it is given, and returns the one named `returns` or none."""

    def register(compute: Callable[..., Any]) -> Operator:
        return emulates(f"npu.{compute.__name__}")(Operator(compute, writes=True, returns=returns))

    return register


def attention_operator(compute: Callable[..., Any]) -> AttentionOperator:
    """Register a function, which returns attention and softmax sums, as the operator of its name."""
    return emulates(f"npu.{compute.__name__}")(AttentionOperator(compute))
