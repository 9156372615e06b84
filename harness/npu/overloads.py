"""An emulated operator as torch offers operators: callable itself, and by the names of its overloads.

The function that computes gets plain CPU tensors over the memory of those on the device, now or when its stream or a
replayed graph gets to it. It never sees a tensor on the device. Every argument that the vendor's operator has is named
here, too: those that the emulation understands in the function's own signature, the others as `neutral`, with the only
value at which they are accepted.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar, overload

import torch

from harness.npu import fault, graph
from harness.npu.arguments import Arguments
from harness.npu.boundary import Event, SlotEvent, events_of
from harness.npu.dispatch import Views, deferring, submit, synchronise
from harness.npu.memory import DEVICE_TYPE, HOST, is_on_device
from harness.npu.registry import emulates

_TENSORS = (torch.Tensor, torch.Tensor | None, Sequence[torch.Tensor])


class Traits(NamedTuple):
    """What is to be known of an operator beside what it computes.

    `neutral`: arguments that are accepted only at these values. `announces`: the event at the operator boundary, before
    the operator touches a KV cache. `writes`: it makes no tensors but changes given ones, and returns those arguments
    that are named in `returns`, or None. `host`: its tensors that are read on the host, as lists of lengths are.
    """

    neutral: Mapping[str, Any] = {}
    announces: type[SlotEvent] | None = None
    writes: bool = False
    returns: tuple[str, ...] = ()
    host: tuple[str, ...] = ()


class Operator:
    """An operator over device memory, which refuses to run once the device has stopped."""

    #: Names of what it makes, where a caller can give the memory for it.
    results: tuple[str, ...] = ()

    def __init__(self, compute: Callable[..., Any], traits: Traits = Traits()) -> None:  # noqa: B008 (a constant)
        self.__name__ = self.__qualname__ = compute.__name__
        self.__doc__ = compute.__doc__
        self.traits = traits
        self._compute = compute
        self._signature = inspect.signature(compute)
        #: Arguments in device memory; all others are the host's, and can be rebound in a captured graph.
        self._on_device = frozenset(
            name
            for name, parameter in self._signature.parameters.items()
            if parameter.annotation in _TENSORS and name not in traits.host
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
        if self.traits.writes:
            self._later(given)
            returned = tuple(views.back(given[name]) for name in self.traits.returns)
            return returned[0] if len(returned) == 1 else returned or None
        made = self._empty_results(given)
        self._later(given, made)
        return views.back(made)

    def _given(self, views: Views, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments by name, tensors as views; refuses tensors that are in the wrong memory."""
        others = {name: value for name, value in kwargs.items() if name not in self._signature.parameters}
        Arguments(self.__name__).require_neutral(others, self.traits.neutral)
        own = {name: value for name, value in kwargs.items() if name not in others}
        given = {}
        for name, value in self._signature.bind(*args, **own).arguments.items():
            if name in self._on_device:
                given[name] = views.of(value)
            elif is_on_device(value):
                if name in self._signature.parameters:
                    synchronise(f"{self.__name__}: {name}")  # the host needs the numbers
                given[name] = views.of(value)
            else:
                given[name] = value
        self._refuse_host_tensors(views)
        return given

    def _refuse_host_tensors(self, views: Views) -> None:
        views.refuse_mixture()
        if views.on_host and torch._C._get_privateuse1_backend_name() == DEVICE_TYPE:
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

        host_inputs = {name: value for name, value in given.items() if name not in self._on_device}
        captured = graph.capturing()
        if captured is not None:
            captured.record_call(self.__name__, host_inputs, call)
        else:
            submit(lambda: call(host_inputs))

    def _empty_results(self, given: dict[str, Any]) -> Any:
        """Tensors like the results, found by computing with zeros: what there is yet may be no sensible input."""
        zeros = {name: torch.zeros_like(value) for name, value in given.items() if isinstance(value, torch.Tensor)}
        return self._run({**given, **zeros})

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

    def events(self, given: Mapping[str, Any]) -> list[Event]:
        """What a call with these arguments, whose tensors are on the host, would announce."""
        taken = {name: value for name, value in given.items() if name in self._signature.parameters}
        return events_of(lambda: self._run(taken))

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name."""
        return dict(self.signatures()["default"].bind(*args, **kwargs).arguments)

    @property
    def default(self) -> Self:
        """The overload that makes its results."""
        return self

    def signatures(self) -> dict[str, inspect.Signature]:
        """What each overload takes, neutral arguments included, and returns."""
        return {"default": _with_keywords(self._signature, self.traits.neutral)}


class HostQuery(Operator):
    """An operator that only the host asks something: it is answered at once, also while a graph is captured."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it with what its tensors are, whatever they hold by now."""
        fault.refuse_after_fault(self.__name__)
        views = Views(self.__name__)
        answer = self._run(self._given(views, args, kwargs))
        return views.back(answer) if views.pairs else answer


class AttentionOperator(Operator):
    """An operator that makes attention and softmax sums, and has an overload which writes them into given tensors."""

    results = ("attention_out", "softmax_lse")

    def out(
        self, *args: Any, out: Sequence[torch.Tensor], workspace: torch.Tensor | None = None, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write attention and softmax sums to `out`.

        Assumption: any workspace is large enough. On a device: nothing, sglang asks the device for the size.
        """
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

    def signatures(self) -> dict[str, inspect.Signature]:
        """As for every operator, and the further arguments of ``out``."""
        found = super().signatures()
        further = inspect.signature(self.out).parameters
        named = {name: further[name].default for name in ("workspace", "out")}
        return found | {"out": _with_keywords(found["default"], named)}

    def _empty_results(self, given: dict[str, Any]) -> Any:
        query, key, value = (given[name] for name in ("query", "key", "value"))
        # Heads of queries are as wide as those of keys, and outputs as values: as their tensors, all heads or each one.
        width = query.shape[-1] * value.shape[-1] // key.shape[-1]
        return query.new_empty(*query.shape[:-1], width), torch.empty(1, device=HOST)


def _several(tensors: Any) -> Sequence[torch.Tensor]:
    return (tensors,) if isinstance(tensors, torch.Tensor) else tensors


def _with_keywords(signature: inspect.Signature, defaults: Mapping[str, Any]) -> inspect.Signature:
    """The signature with keyword-only arguments added."""
    more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in defaults.items()]
    return signature.replace(parameters=[*signature.parameters.values(), *more])


_Kind = TypeVar("_Kind", bound=Operator)


def _registering(kind: type[_Kind], traits: Traits) -> Callable[[Callable[..., Any]], _Kind]:
    def register(compute: Callable[..., Any]) -> _Kind:
        return emulates(f"npu.{compute.__name__}")(kind(compute, traits))

    return register


@overload
def operator(compute: Callable[..., Any]) -> Operator: ...


@overload
def operator(**traits: Any) -> Callable[[Callable[..., Any]], Operator]: ...


def operator(compute: Callable[..., Any] | None = None, **traits: Any) -> Any:
    """Register a function as the operator of its name; `traits` are those of `Traits`."""
    register = _registering(Operator, Traits(**traits))
    return register if compute is None else register(compute)


def host_query(compute: Callable[..., Any]) -> HostQuery:
    """Register a function as the host's query of its name."""
    return _registering(HostQuery, Traits())(compute)


def attention_operator(**traits: Any) -> Callable[[Callable[..., Any]], AttentionOperator]:
    """Register a function, which returns attention and softmax sums, as the operator of its name."""
    return _registering(AttentionOperator, Traits(**traits))


def taking_what(other: Operator) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a function the arguments of another operator, by their names."""

    def widen(compute: Callable[..., Any]) -> Callable[..., Any]:
        signature = other.signatures()["default"]

        @functools.wraps(compute)
        def wide(*args: Any, **kwargs: Any) -> Any:
            return compute(**signature.bind(*args, **kwargs).arguments)

        returns = inspect.signature(compute).return_annotation
        wide.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
        return wide

    return widen
