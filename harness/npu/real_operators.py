"""The operator boundary of a real NPU: its operators announce what the emulated ones would, before they are launched.

The emulated operator of the same name is given what the real one is given, as far as it decides what is accessed: block
tables, lengths, slots and masks are copied to the host, all else has its shape and no content. So a sanitizer names the
cause of an error 507015 before the device meets it. The price is a synchronisation for each call.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from harness.npu import finder  # noqa: F401  registers the emulated operators
from harness.npu.boundary import announce
from harness.npu.overloads import Operator
from harness.npu.registry import emulated_names, lookup

#: Tensors of these types and names decide what is accessed, and are looked at.
_LOOKED_AT = (torch.int32, torch.int64, torch.bool, torch.int8, torch.uint8)
_MASKS = ("mask", "atten_mask")
_ALSO_OUT = ("out", "workspace")


class Announcing:
    """A real operator that announces through its emulation; what it computes is the device's."""

    def __init__(self, real: Any, emulated: Operator) -> None:
        self._real = real
        self._emulated = emulated

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Announce, then launch."""
        self._announce(args, kwargs)
        return self._real(*args, **kwargs)

    def out(self, *args: Any, **kwargs: Any) -> Any:
        """The overload that writes to given tensors."""
        self._announce(args, {name: value for name, value in kwargs.items() if name not in _ALSO_OUT})
        return self._real.out(*args, **kwargs)

    @property
    def default(self) -> "Announcing":
        """The overload that makes its results."""
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def _announce(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        addresses: dict[int, int] = {}
        seen: dict[int, torch.Tensor] = {}

        def shown(name: str, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            if value.dtype in _LOOKED_AT or name in _MASKS:
                return value.cpu()
            if id(value) not in seen:
                # One number under the whole shape: nothing is copied, and every cache has an address of its own.
                seen[id(value)] = torch.zeros(1, dtype=value.dtype, device="cpu").expand(value.shape)
                addresses[seen[id(value)].data_ptr()] = value.data_ptr()
            return seen[id(value)]

        given = {name: shown(name, value) for name, value in self._emulated.bound(args, kwargs).items()}
        try:
            events = self._emulated.events(given)
        except RuntimeError as error:
            raise NotImplementedError(
                f"this call cannot be watched, since the emulation refuses it: {error}"
            ) from error
        for event in events:
            announce(event._replace(cache=addresses[event.cache]))


def activate(namespaces: Sequence[ModuleType | Any]) -> list[str]:
    """Have the operators in `namespaces` (``torch_npu``, ``torch.ops.npu``) announce; returns their names."""
    watched = []
    for name in emulated_names():
        emulated = lookup(name)
        if not name.startswith("npu.") or not isinstance(emulated, Operator) or emulated.traits.announces is None:
            continue
        short = name.removeprefix("npu.")
        for namespace in namespaces:
            if hasattr(namespace, short):
                setattr(namespace, short, Announcing(getattr(namespace, short), emulated))
                watched.append(short)
    return watched
