"""Operators of a real NPU announce as the emulated ones do; a stand-in for torch_npu takes the calls."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.npu import real_operators
from harness.npu.boundary import AttentionRead, CacheWrite, Event, listening
from harness.npu.overloads import Operator
from harness.npu.registry import emulated_names, lookup
from tests.npu.test_announcements import CALLS

_ANNOUNCING = [
    name
    for name in emulated_names()
    if name.startswith("npu.") and isinstance(found := lookup(name), Operator) and found.traits.announces
]


class _Real:
    """An operator that notes its calls, and looks at nothing."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "launched"

    def out(self, *args: Any, **kwargs: Any) -> str:
        self.calls.append((args, kwargs))
        return "launched out"


def _heard(call: Any) -> list[Event]:
    heard: list[Event] = []
    with listening(heard.append):
        call()
    return heard


def _alike(first: list[Event], second: list[Event]) -> bool:
    return [repr(event) for event in first] == [repr(event) for event in second]


@pytest.mark.parametrize("name", _ANNOUNCING)
def test_a_real_operator_announces_what_the_emulated_one_does_and_is_launched(name: str) -> None:
    short, arguments, real = name.removeprefix("npu."), CALLS[name](), _Real()
    namespace = SimpleNamespace(**{short: real})
    assert real_operators.activate([namespace]) == [short]

    expected = _heard(lambda: lookup(name)(**{key: _copied(value) for key, value in arguments.items()}))
    found = _heard(lambda: getattr(namespace, short)(**arguments))

    assert found
    assert _alike([event._replace(cache=0) for event in found], [event._replace(cache=0) for event in expected])
    caches = {value.data_ptr() for value in arguments.values() if isinstance(value, torch.Tensor)}
    assert {event.cache for event in found} <= caches
    assert len(real.calls) == 1


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def test_the_out_overload_is_announced_and_launched() -> None:
    real = _Real()
    namespace = SimpleNamespace(npu_fused_infer_attention_score=real)
    real_operators.activate([namespace])
    arguments = CALLS["npu.npu_fused_infer_attention_score"]()
    heard: list[Event] = []
    with listening(heard.append):
        done = namespace.npu_fused_infer_attention_score.out(**arguments, workspace=None, out=[torch.zeros(1)] * 2)

    assert done == "launched out"
    assert [type(event) for event in heard] == [AttentionRead, AttentionRead]


def test_a_listener_hears_of_a_slot_outside_before_the_device_does() -> None:
    real, order = _Real(), list[str]()
    namespace = SimpleNamespace(_npu_reshape_and_cache=lambda **given: order.append("launched"))
    real_operators.activate([namespace])
    arguments = CALLS["npu._npu_reshape_and_cache"]() | {"slot_indices": torch.tensor([99])}
    with listening(lambda event: order.append(f"{type(event).__name__} {event.slots.tolist()}")):  # type: ignore[union-attr]
        namespace._npu_reshape_and_cache(**arguments)

    assert order == [f"{CacheWrite.__name__} [99]", f"{CacheWrite.__name__} [99]", "launched"]
    assert not real.calls


def test_a_call_that_the_emulation_refuses_cannot_be_watched_and_says_why() -> None:
    namespace = SimpleNamespace(npu_fused_infer_attention_score=_Real())
    real_operators.activate([namespace])
    arguments = CALLS["npu.npu_fused_infer_attention_score"]() | {"block_size": 24}

    with pytest.raises(NotImplementedError, match=r"cannot be watched.*block_size is 24"):
        namespace.npu_fused_infer_attention_score(**arguments)
