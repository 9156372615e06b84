"""Whose error is it: sglang's is an observation, the driver's own is UNKNOWN."""

import linecache
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from harness.npu import fault
from harness.scenario import GateScenario
from harness.subject import blame
from harness.subject.ascend import driver
from harness.subject.blame import StandIn
from harness.subject.frames import Observe, SubjectInfo


@pytest.fixture(autouse=True)
def device_is_back() -> Iterator[None]:
    """A device that a test has lost is lost to no other."""
    yield
    fault.reset()


SGLANG = """
def fails():
    return [][1]

def asks(stand_in):
    return stand_in.something_new

def calls(function):
    return function()

def refuses():
    raise NotImplementedError(
        "mixed batches"
    )
"""


@pytest.fixture
def sglang(tmp_path: Path) -> ModuleType:
    """A module that lies where sglang would."""
    path = tmp_path / "sglang" / "module.py"
    path.parent.mkdir()
    path.write_text(SGLANG)
    module = ModuleType("module")
    exec(compile(SGLANG, str(path), "exec"), module.__dict__)
    linecache.checkcache(str(path))
    return module


def raised(function, *arguments) -> Exception:
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return caught.value


def test_what_sglang_raises_is_an_observation(sglang: ModuleType) -> None:
    assert blame.sglang_error(raised(sglang.fails)) == "IndexError: list index out of range"


def test_an_attribute_that_a_stand_in_lacks_is_the_drivers(sglang: ModuleType) -> None:
    with pytest.raises(AttributeError, match="something_new"):
        blame.sglang_error(raised(sglang.asks, StandIn()))


def test_an_attribute_that_a_marked_object_of_sglang_lacks_is_the_drivers(sglang: ModuleType) -> None:
    class Runner:
        stands_in = True

    with pytest.raises(AttributeError, match="something_new"):
        blame.sglang_error(raised(sglang.asks, Runner()))


def test_an_error_of_the_harness_that_sglang_called_is_the_drivers(sglang: ModuleType) -> None:
    with pytest.raises(AttributeError, match="__traceback__"):
        blame.sglang_error(raised(sglang.calls, lambda: blame._own_frames(None)))


def test_what_a_model_would_raise_is_an_observation() -> None:
    def projects() -> None:
        raise blame.ModelError("rows of another width")

    assert blame.sglang_error(raised(projects)) == "ModelError: rows of another width"


def test_an_error_without_sglang_on_the_stack_is_the_drivers() -> None:
    with pytest.raises(ZeroDivisionError):
        blame.sglang_error(raised(lambda: 1 / 0))


def test_what_the_emulated_device_refuses_is_sglangs(sglang: ModuleType) -> None:
    from harness.npu import fault

    assert blame.sglang_error(raised(sglang.calls, lambda: fault.fail("operator", "a page"))) == (
        "DeviceFault: operator: error code 507015, aicore exception: the DDR address of the MTE instruction is out of "
        "range (a page)"
    )


def test_an_operator_that_is_not_emulated_is_the_drivers(sglang: ModuleType) -> None:
    from harness.npu.registry import Stub

    with pytest.raises(NotImplementedError, match="npu_new_operator"):
        blame.sglang_error(raised(sglang.calls, Stub("npu_new_operator")))


def test_an_operation_that_torch_has_not_for_a_device_is_the_drivers(sglang: ModuleType) -> None:
    with pytest.raises(NotImplementedError, match="meta"):
        blame.sglang_error(raised(sglang.calls, torch.empty(2, device="meta").tolist))


def test_what_sglang_has_no_code_for_and_says_is_an_observation(sglang: ModuleType) -> None:
    assert blame.sglang_error(raised(sglang.refuses)) == "NotImplementedError: mixed batches"


def no_memory() -> None:
    bytearray(1 << 60)


def no_memory_for_a_tensor() -> None:
    torch.empty(1 << 60, dtype=torch.int8)


@pytest.mark.parametrize("take", [no_memory, no_memory_for_a_tensor])
def test_memory_that_runs_out_in_sglang_is_no_observation_and_ends_the_worker(
    sglang: ModuleType, take: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((MemoryError, RuntimeError)):
        blame.sglang_error(raised(sglang.calls, take))

    own = driver.Driver.__new__(driver.Driver)
    own.info = SubjectInfo("ascend", "", "emulated", {}, ("DFLASH",))
    monkeypatch.setattr(driver.gate, "ask", lambda scenario: take())
    with pytest.raises((MemoryError, RuntimeError)):
        own.observe(Observe(1.0, (GateScenario("npu"),)))
