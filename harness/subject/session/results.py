"""Results of batches: published by a worker, and read by the scheduler, with overlap a turn later."""

from typing import Any

import torch

from harness.scenario.observation import Changed
from harness.subject.session.numbers import Integers, integers


class Results:
    """What has been published and not read yet.

    A result that is read must be as it was published: where it is storage that the next step writes to, the scheduler
    reads what belongs to another step.
    """

    def __init__(self) -> None:
        self._published: dict[int, tuple[Any, dict[str, Integers]]] = {}

    def publish(self, result: Any) -> None:
        """A batch has been run; its `result` is kept, so that its number is not given to another one."""
        self._published[id(result)] = (result, _values(result))

    def read(self, result: Any) -> list[Changed]:
        """The scheduler begins to read a result: what of it has changed. A field that is gone or new is none."""
        _, before = self._published.pop(id(result), (None, {}))
        after = _values(result)
        return [
            Changed(f"result {name}", str(old.dtype), tuple(old.reshape(-1).tolist()), tuple(new.reshape(-1).tolist()))
            for name, old in before.items()
            if (new := after.get(name)) is not None and new.shape == old.shape and (new != old).any()
        ]


def _values(result: Any) -> dict[str, Integers]:
    """The tensors of integers that a result has, by name."""
    fields = getattr(result, "__dict__", {})
    return {name: integers(value) for name, value in fields.items() if _is_integer(value)}


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point() and not value.is_complex()
