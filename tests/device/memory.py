"""Device memory: separate from the host's, and seen by torch as any device's."""

import copy
import gc
from collections.abc import Callable

import pytest

from harness.npu import install

install()

import torch  # noqa: E402

DEVICE = "npu"


def test_tensors_say_where_they_are() -> None:
    tensor = torch.ones(2, 3, device=DEVICE)

    assert (tensor.device.type, tensor.is_contiguous(), tensor.t().stride()) == ("npu", True, (1, 3))
    assert tensor.data_ptr() != 0


@pytest.mark.parametrize(
    "moved",
    [lambda host: host.to(DEVICE), lambda host: host.npu(), lambda host: torch.empty(2, device=DEVICE).copy_(host)],
)
def test_what_is_moved_to_the_device_shares_nothing_with_its_source(
    moved: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    host = torch.tensor([1.0, 2.0])
    there = moved(host)
    host.fill_(7.0)

    assert there.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("moved", [lambda there: there.cpu(), lambda there: there.to("cpu", non_blocking=True)])
def test_what_is_moved_to_the_host_shares_nothing_with_its_source(
    moved: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    there = torch.tensor([1.0, 2.0], device=DEVICE)
    host = moved(there)
    there.fill_(7.0)

    assert host.tolist() == [1.0, 2.0]


def test_a_cast_on_the_host_still_aliases_where_it_does_on_any_machine() -> None:
    host = torch.tensor([1, 2], dtype=torch.int32)

    assert host.int() is host


def test_views_share_their_base() -> None:
    base = torch.zeros(2, 3, device=DEVICE)
    base[1].add_(1)
    base.view(-1)[0] = 5
    base.t()[2, 0] = 6

    assert base.tolist() == [[5, 0, 6], [1, 1, 1]]
    assert base[1].untyped_storage().data_ptr() == base.untyped_storage().data_ptr()


_THERE = torch.arange(4.0, device=DEVICE)
_HERE = torch.arange(4.0)


@pytest.mark.parametrize(
    "mix",
    [
        lambda: _THERE + _HERE,
        lambda: _HERE.add_(_THERE),
        lambda: torch.cat([_THERE, _HERE]),
        lambda: torch.where(_THERE > 1, _HERE, _THERE),
        lambda: torch.index_select(_THERE, 0, torch.tensor([0])),
        lambda: _THERE.clone().index_copy_(0, torch.tensor([0]), _THERE[:1]),
        lambda: torch.cumsum(_THERE, 0, out=torch.ones(4)),
        lambda: torch.stack([_THERE, _HERE]),
    ],
)
def test_mixing_host_and_device_fails(mix: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(RuntimeError, match="same device"):
        mix()


def test_numbers_and_indices_may_come_from_the_host() -> None:
    assert (_THERE + torch.tensor(1.0)).tolist() == [1, 2, 3, 4]
    assert _THERE[torch.tensor([3, 0])].tolist() == [3, 0]


def test_numpy_cannot_see_the_device() -> None:
    with pytest.raises(TypeError, match="numpy"):
        _THERE.numpy()


@pytest.mark.parametrize(
    ("dtype", "number", "expected"),
    [(torch.int32, 1, torch.int32), (torch.int32, 1.5, torch.float32), (torch.bfloat16, 1.5, torch.bfloat16)],
)
def test_numbers_promote_types_as_on_the_host(dtype: torch.dtype, number: float, expected: torch.dtype) -> None:
    host, there = torch.ones(2, dtype=dtype), torch.ones(2, dtype=dtype, device=DEVICE)

    assert (there + number).dtype == (host + number).dtype == expected
    assert (there * number).tolist() == (host * number).tolist()


@pytest.mark.parametrize("number", [2, 2.5, True])
def test_a_number_can_stand_for_a_tensor(number: float) -> None:
    host = torch.tensor([5, 7])
    for operator in (torch.remainder, torch.mul, torch.add, torch.div, torch.floor_divide, torch.eq):
        expected, found = operator(host, number), operator(host.to(DEVICE), number)
        assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


def test_operators_agree_with_the_host() -> None:
    host = torch.tensor([[3.0, 1.0, 2.0], [0.5, 0.25, 4.0]])
    there = host.to(DEVICE)
    for operator in (
        lambda t: t.sort(-1).indices,
        lambda t: t.topk(2).values,
        lambda t: t.softmax(-1),
        lambda t: torch.cat([t, t]).cumsum(0),
        lambda t: t.masked_fill(t > 1, 0.0),
        lambda t: t[t > 1],
        lambda t: torch.nn.functional.linear(t, t),
        lambda t: torch.ops.aten.conj.default(t.to(torch.complex64)).resolve_conj().real,
        lambda t: t.nonzero(),
        lambda t: t.unique(),
        lambda t: t.argmax(-1),
    ):
        assert torch.equal(operator(there).cpu(), operator(host))


@pytest.mark.parametrize(
    "operator",
    [
        lambda t: t % 2,
        lambda t: t.clone().remainder_(2),
        lambda t: torch.fmod(t, 2),
        lambda t: t.to(torch.int32) & 1,
        lambda t: torch.xlogy(t, 2.0),
    ],
)
def test_operators_take_numbers_in_the_place_of_tensors(operator: Callable[[torch.Tensor], torch.Tensor]) -> None:
    there, here = operator(_THERE), operator(_HERE)

    assert (there.tolist(), there.dtype) == (here.tolist(), here.dtype)


def test_outputs_are_given_the_size_they_need() -> None:
    out = torch.empty(0, device=DEVICE)
    torch.add(_THERE, 1, out=out)

    assert out.tolist() == [1, 2, 3, 4]


def test_resizing_keeps_what_was_there() -> None:
    tensor = torch.tensor([1.0, 2.0], device=DEVICE)
    tensor.resize_(3)[2] = 9

    assert tensor.tolist() == [1, 2, 9]


def test_modules_live_on_the_device() -> None:
    with torch.device(DEVICE):
        layer = torch.nn.Linear(2, 2)
    layer.weight.data = torch.eye(2, device=DEVICE)
    layer.bias.data.zero_()
    twin = copy.deepcopy(layer)
    layer.weight.data.fill_(5)

    assert isinstance(twin.weight, torch.nn.Parameter)
    assert twin(torch.tensor([[1.0, 2.0]], device=DEVICE)).tolist() == [[1, 2]]
    assert layer.to("cpu").weight.tolist() == [[5, 5], [5, 5]]


def test_a_host_module_can_be_moved() -> None:
    layer = torch.nn.Linear(2, 2).to(DEVICE)

    assert {parameter.device.type for parameter in layer.parameters()} == {"npu"}


def test_storages_can_be_read_and_set() -> None:
    storage = torch.tensor([1, 2, 3], dtype=torch.uint8, device=DEVICE).untyped_storage()
    other = torch.empty(0, dtype=torch.uint8, device=DEVICE).set_(storage)
    other[0] = 9

    assert list(storage.cpu()) == [9, 2, 3]


def test_pinned_memory_is_remembered() -> None:
    pinned = torch.tensor([1], pin_memory=True)
    there = torch.tensor([1, 2], device=DEVICE)

    assert pinned.is_pinned() and pinned.view(1, 1).is_pinned() and torch.tensor([1]).pin_memory().is_pinned()
    assert not torch.tensor([1]).is_pinned()
    assert there.to("cpu", non_blocking=True).is_pinned()
    assert not there.to("cpu").is_pinned()


def test_device_memory_is_freed_with_its_last_tensor() -> None:
    import weakref

    tensor = torch.zeros(8, device=DEVICE)
    twin = weakref.ref(tensor.untyped_storage().twin)
    part = tensor[2:]
    gc.disable()
    try:
        del tensor
        assert twin() is not None
        del part
        assert twin() is None
    finally:
        gc.enable()


def test_after_a_fault_every_operator_fails() -> None:
    from harness.npu import fault

    with pytest.raises(fault.DeviceFault, match="507015"):
        fault.fail("an operator", "an address")
    for use in (lambda: _THERE + 1, lambda: _THERE.cpu(), torch.npu.synchronize):
        with pytest.raises(fault.DeviceFault, match="507015"):
            use()
    fault.reset()
    assert (_THERE + 1).tolist() == [1, 2, 3, 4]


def test_views_can_be_made_in_inference_mode_of_tensors_from_outside_it() -> None:
    layer = torch.nn.Linear(4, 3, bias=False, device=DEVICE)
    rows = torch.ones(2, 4, device=DEVICE)
    with torch.inference_mode():
        rows[1:].mul_(2)
        made = layer(rows)
        assert not rows[1:].is_inference()
        assert made[1:].is_inference()
    assert rows.tolist() == [[1, 1, 1, 1], [2, 2, 2, 2]]
    torch.testing.assert_close(made.cpu(), rows.cpu() @ layer.weight.detach().cpu().T)
