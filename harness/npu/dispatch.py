"""The one kernel of the device: every torch operator on a tensor in device memory comes here.

It runs torch's CPU kernel over the same bytes (`memory.host_view`), now or when its stream gets to it. An operator that
mixes device and host memory fails in torch's own checks, as on any device, or here.
"""

import enum
import functools
from collections.abc import Callable
from typing import Any

import torch

from harness.npu import fault, graph, synchronisation
from harness.npu.memory import DEVICE_TYPE, HOST, device_tensor, host_view, is_on_device, resize
from harness.npu.pinned import is_pinned
from harness.npu.stream import Work, current_stream


class Kind(enum.Enum):
    """What an operator does to device memory."""

    VIEW = enum.auto()  # another tensor over the same bytes: nothing for the device to do
    READ = enum.auto()  # the host learns a number or a size, so it waits
    WRITE = enum.auto()  # changes given tensors, and returns them
    MAKE = enum.auto()  # makes new tensors


# Tensors that may lie on the host beside operands on the device: indices, which torch moves by itself.
_TAKES_HOST_INDICES = {"aten::index", "aten::index_put_", "aten::_index_put_impl_", "aten::index_put"}


@functools.cache
def _written(operator: Any) -> tuple[Any, ...]:
    """The arguments that are written to, in the order of the schema."""
    arguments = operator._schema.arguments
    return tuple(argument for argument in arguments if argument.alias_info and argument.alias_info.is_write)


@functools.cache
def _kind(operator: Any) -> Kind:
    if torch.Tag.dynamic_output_shape in operator.tags or torch.Tag.data_dependent_output in operator.tags:
        return Kind.READ
    if _written(operator):
        return Kind.WRITE
    tensors = [result for result in operator._schema.returns if "Tensor" in str(result.type)]
    if not tensors:
        return Kind.READ
    return Kind.VIEW if any(result.alias_info for result in tensors) else Kind.MAKE


@functools.cache
def _outputs(operator: Any) -> tuple[str, ...]:
    """The arguments that are given to be written to, and may first have to be given a size."""
    return tuple(argument.name for argument in _written(operator) if argument.kwarg_only)


@functools.cache
def _tensors_only(operator: Any) -> tuple[int, ...]:
    """The places of positional arguments after the first where this overload takes tensors, and no numbers."""
    if torch._C._should_allow_numbers_as_tensors(operator._schema.name.partition("::")[2]):
        return ()
    return tuple(
        place
        for place, argument in enumerate(operator._schema.arguments)
        if place and not argument.kwarg_only and str(argument.type) == "Tensor"
    )


class Views:
    """The host views of one call's arguments, to find the tensors again among its results."""

    def __init__(self, operator: str, host_allowed: bool = False) -> None:
        self.operator = operator
        self.host_allowed = host_allowed
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.on_host: list[torch.Tensor] = []

    def of(self, value: Any) -> Any:
        """`value` with tensors on the device replaced by views, and the device by the host."""
        if isinstance(value, torch.Tensor):
            if value.device.type != DEVICE_TYPE:
                if value.dim():
                    self.on_host.append(value)
                return value
            view = host_view(value)
            self.pairs.append((view, value))
            return view
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        return HOST if isinstance(value, torch.device) else value

    def refuse_mixture(self) -> None:
        """Raise RuntimeError, as torch does, where a tensor of more than a number is on the host."""
        if self.on_host and self.pairs and not self.host_allowed:
            raise RuntimeError(
                f"{self.operator}: expected all tensors to be on the same device, but found npu:0 and "
                f"{self.on_host[0].device} (of shape {list(self.on_host[0].shape)})"
            )

    def back(self, result: Any) -> Any:
        """`result` with tensors labelled as the device's: arguments as they were given, all others anew."""
        if isinstance(result, torch.Tensor):
            for view, tensor in self.pairs:
                if result is view:
                    return tensor
            return device_tensor(result)
        if isinstance(result, (list, tuple)):
            return type(result)(map(self.back, result))
        return result

    def take_sizes(self) -> None:
        """Give tensors the sizes that a kernel gave to their views."""
        for view, tensor in self.pairs:
            if view.size() != tensor.size():
                resize(tensor, view)


def deferring() -> bool:
    """Whether work that is submitted now will run later: in a replay, or when its stream gets to it."""
    return graph.capturing() is not None or not current_stream().is_up_to_date


def submit(work: Work) -> None:
    """Give `work` to the graph that is being captured, or else to the current stream."""
    captured = graph.capturing()
    if captured is not None:
        captured.record(work)
    else:
        current_stream().submit(work)


def synchronise(reason: str) -> None:
    """Have the host wait for the current stream; raises RuntimeError while a graph is captured, as on the device."""
    if graph.capturing() is not None:
        raise RuntimeError(f"{reason}: the host cannot wait for the device while a graph is being captured")
    synchronisation.count(reason)
    current_stream().finish()


def run(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel: `operator` on arguments of which one at least is on the device, or is to be."""
    name = operator._schema.name
    fault.refuse_after_fault(name)
    views = Views(name, host_allowed=name in _TAKES_HOST_INDICES)
    host_args = [views.of(value) for value in args]
    host_kwargs = {key: views.of(value) for key, value in kwargs.items()}
    if views.on_host:
        views.refuse_mixture()
    kind = _kind(operator)
    call = operator
    for place in _tensors_only(operator):
        # torch hands over a number in place of a tensor as a number, which the overloads for numbers accept.
        if place < len(args) and isinstance(args[place], (int, float, complex)):
            call = operator.overloadpacket
    if kind is Kind.READ:
        synchronise(name)
    if kind in (Kind.VIEW, Kind.READ) or not deferring():
        result = call(*host_args, **host_kwargs)
        if kind is Kind.WRITE:
            views.take_sizes()
        if kind is Kind.VIEW and torch.is_inference_mode_enabled() and not views.pairs[0][1].is_inference():
            # A view of a tensor that counts its versions has to share the count, which no inference tensor can.
            with torch.inference_mode(False):
                return views.back(result)
        return views.back(result)
    if kind is Kind.WRITE:
        return _write_later(operator, call, views, host_args, host_kwargs)
    made = _placeholders(call(*_on_meta(host_args), **_on_meta(host_kwargs)))

    def work() -> None:
        _copy_results(call(*host_args, **host_kwargs), made)

    submit(work)
    return views.back(made)


def _write_later(operator: Any, call: Any, views: Views, args: list[Any], kwargs: dict[str, Any]) -> Any:
    outputs = _outputs(operator)
    if any(kwargs[name].numel() == 0 for name in outputs if isinstance(kwargs.get(name), torch.Tensor)):
        sizes = _on_meta(kwargs)
        call(*_on_meta(args), **sizes)
        for name in outputs:
            kwargs[name].resize_(sizes[name].size())
        views.take_sizes()
    submit(lambda: call(*args, **kwargs))
    # What is returned are the arguments that are written to, in the order of the schema.
    schema = operator._schema
    given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    written = [given.get(argument.name) for argument in _written(operator)]
    if not schema.returns:
        return None
    return views.back(written[0] if len(schema.returns) == 1 else tuple(written))


def _on_meta(value: Any) -> Any:
    """`value` with tensors replaced by ones without bytes, to learn the sizes of results before there are any."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, dict):
        return {key: _on_meta(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_on_meta(item) for item in value]
    return torch.device("meta") if isinstance(value, torch.device) else value


def _placeholders(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return torch.empty_strided(result.size(), result.stride(), dtype=result.dtype, device=HOST)
    return type(result)(map(_placeholders, result)) if isinstance(result, (list, tuple)) else result


def _copy_results(results: Any, into: Any) -> None:
    if isinstance(into, torch.Tensor):
        into.copy_(results)
    elif isinstance(into, (list, tuple)):
        for result, place in zip(results, into, strict=True):
            _copy_results(result, place)


def copy(source: torch.Tensor, into: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """`aten::_copy_from`: between two tensors of which one at least is on the device.

    Asynchronous copies are those between the device and pinned host memory. Assumption: a copy from pageable memory has
    read its source when the call returns, and a copy to it has been done.
    """
    fault.refuse_after_fault("aten::_copy_from")
    if not is_on_device(into):
        view = host_view(source)
        if not (non_blocking and is_pinned(into)):
            synchronise("aten::_copy_from")
            return into.copy_(view)
        _now_or_later(lambda: into.copy_(view))
        return into
    target = host_view(into)
    if is_on_device(source):
        origin = host_view(source)
    elif (non_blocking and is_pinned(source)) or not deferring():
        origin = source
    else:
        origin = source.clone()
    _now_or_later(lambda: target.copy_(origin))
    return into


def _now_or_later(work: Callable[[], Any]) -> None:
    if deferring():
        submit(work)
    else:
        work()
