"""The emulated NPU, observed in processes of its own: installing it changes a process for good."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]

_OBSERVE_TORCH = """
import torch
from harness.npu import install, is_installed

seen["installed before"] = is_installed()
install()
finders, empty = len(sys.meta_path), torch.empty
install()
seen["second install"] = [is_installed(), len(sys.meta_path) == finders, torch.empty is empty]

made = {
    "empty": torch.empty(2, device="npu"),
    "zeros": torch.zeros(2, device="npu:0"),
    "tensor": torch.tensor([1, 2], device="npu"),
    "arange": torch.arange(2, device=torch.device("npu")),
    "randn": torch.randn(2, device="npu"),
    "empty_strided": torch.empty_strided((2,), (1,), device="npu"),
    "zeros_like": torch.zeros_like(torch.ones(2), device="npu"),
    "tril_indices": torch.tril_indices(2, 2, device="npu"),
}
seen["factories"] = {name: tensor.shape[0] for name, tensor in made.items()}
seen["channels last"] = torch.empty(
    1, 2, 3, 4, device="npu", memory_format=torch.channels_last
).is_contiguous(memory_format=torch.channels_last)

host = torch.tensor([3, 4])
moved = host.to("npu", non_blocking=True)
moved[0] = 9
seen["moved"] = [host.tolist(), moved.tolist(), host.npu().tolist()]

with torch.device("npu"):
    seen["device context"] = torch.arange(3).tolist()
with torch.device("meta"):
    seen["meta context"] = [f(2).device.type for f in (torch.empty, torch.zeros, torch.ones, torch.arange)]
seen["meta argument"] = torch.zeros(2, device="meta").device.type

pinned = torch.tensor([5], pin_memory=True)
seen["pinned"] = [pinned.tolist(), host.pin_memory().tolist(), torch.zeros(1, pin_memory=True).tolist()]
seen["generator"] = [
    isinstance(torch.Generator, type),
    isinstance(torch.default_generator, torch.Generator),
    isinstance(None, torch.Generator | None),
    isinstance(torch.Generator(device="npu"), torch.Generator),
    torch.rand(1, generator=torch.Generator("npu").manual_seed(7), device="npu").item()
    == torch.rand(1, generator=torch.Generator().manual_seed(7)).item(),
]
"""

_OBSERVE_PACKAGES = """
import torch
from harness.npu import install

install()
import importlib.util
import torch_npu
import torchair
from sgl_kernel_npu.mem_cache.allocator import alloc_extend_kernel
from sgl_kernel_npu.norm.l1_norm import l1_norm
from triton.language.extra.cann import libdevice


def refusal(call):
    try:
        call()
    except NotImplementedError as error:
        return str(error)


seen["package stub"] = refusal(lambda: l1_norm(1))
seen["Triton stub"] = refusal(lambda: libdevice.tanh(1))
seen["launched stub"] = refusal(lambda: l1_norm[(2,)](1))
seen["torch_npu operator"] = refusal(lambda: torch_npu.npu_of_tomorrow(1))
seen["torch.ops operator"] = refusal(lambda: torch.ops.npu.npu_of_tomorrow.out(1))
seen["absent"] = [hasattr(torch_npu, "float_of_tomorrow"), hasattr(torch.npu, "query_of_tomorrow")]
seen["one runtime"] = torch_npu.npu is torch.npu
seen["specs"] = [importlib.util.find_spec(name) is not None for name in ("torch_npu", "acl", "torchair")]
seen["Triton interprets"] = os.environ["TRITON_INTERPRET"]

early, late = torch.npu.Event(), torch.npu.Event()
stream = torch.npu.Stream()
with torch.npu.stream(stream):
    early.record()
    stream.record_event(late)
seen["elapsed"] = early.elapsed_time(late) >= 0


def allocated(prefix, total, last):
    with torch.device("npu"):
        tensors = [torch.tensor(values) for values in (prefix, total, last, [7, 5, 6])]
        out = torch.full((sum(total) - sum(prefix),), -1)
    alloc_extend_kernel[(len(prefix),)](*tensors, out, 2, 4, 8)
    return out.tolist()


seen["fresh requests"] = allocated([0, 0], [5, 2], [-1, -1])
seen["grown requests"] = allocated([3, 4], [6, 5], [42, 11])
seen["within a page"] = allocated([1], [3], [8])
"""

_OBSERVE_REFUSALS = """
from harness.npu import install, presence


def refusal(**arguments):
    try:
        install(**arguments)
    except RuntimeError as error:
        return str(error)


presence.real_device = lambda: "/dev/davinci0"
seen["beside a device"] = refusal()
seen["torch imported"] = "torch" in sys.modules
sys.modules["sglang"] = None
seen["after sglang"] = refusal()
del sys.modules["sglang"]
os.environ["HARNESS_NPU_BESIDE_DEVICE"] = "1"
seen["told to"] = refusal()
"""


def _observe(snippet: str) -> dict[str, Any]:
    code = f"import json, os, sys\nseen = {{}}\n{snippet}\nprint(json.dumps(seen))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=_ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    observed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return observed


@pytest.fixture(scope="module")
def in_torch() -> dict[str, Any]:
    return _observe(_OBSERVE_TORCH)


@pytest.fixture(scope="module")
def in_packages() -> dict[str, Any]:
    return _observe(_OBSERVE_PACKAGES)


@pytest.fixture(scope="module")
def in_refusals() -> dict[str, Any]:
    return _observe(_OBSERVE_REFUSALS)


def test_installing_twice_is_installing_once(in_torch: dict[str, Any]) -> None:
    assert in_torch["installed before"] is False
    assert in_torch["second install"] == [True, True, True]


def test_factories_accept_the_device(in_torch: dict[str, Any]) -> None:
    assert set(in_torch["factories"].values()) == {2}
    assert in_torch["channels last"] is True


def test_moving_to_the_device_copies(in_torch: dict[str, Any]) -> None:
    assert in_torch["moved"] == [[3, 4], [9, 4], [3, 4]]


def test_the_device_can_be_a_context(in_torch: dict[str, Any]) -> None:
    assert in_torch["device context"] == [0, 1, 2]


def test_meta_contexts_still_work(in_torch: dict[str, Any]) -> None:
    assert in_torch["meta context"] == ["meta"] * 4
    assert in_torch["meta argument"] == "meta"


def test_pinned_memory_can_be_asked_for(in_torch: dict[str, Any]) -> None:
    assert in_torch["pinned"] == [[5], [3, 4], [0]]


def test_generator_stays_a_class_and_makes_generators_for_the_device(in_torch: dict[str, Any]) -> None:
    assert in_torch["generator"] == [True] * 5


def test_calling_a_stub_names_it(in_packages: dict[str, Any]) -> None:
    assert "sgl_kernel_npu.norm.l1_norm.l1_norm is not emulated" in in_packages["package stub"]
    assert "sgl_kernel_npu.norm.l1_norm.l1_norm is not emulated" in in_packages["launched stub"]
    assert "triton.language.extra.cann.libdevice.tanh is not emulated" in in_packages["Triton stub"]


def test_calling_an_unknown_operator_names_it(in_packages: dict[str, Any]) -> None:
    assert "torch_npu.npu_of_tomorrow is not emulated" in in_packages["torch_npu operator"]
    assert "torch.ops.npu.npu_of_tomorrow.out is not emulated" in in_packages["torch.ops operator"]


def test_what_is_no_operator_and_not_emulated_is_absent(in_packages: dict[str, Any]) -> None:
    assert in_packages["absent"] == [False, False]


def test_the_packages_are_found_like_installed_ones(in_packages: dict[str, Any]) -> None:
    assert in_packages["one runtime"] is True
    assert in_packages["specs"] == [True] * 3


def test_triton_interprets_unless_told_otherwise(in_packages: dict[str, Any]) -> None:
    assert in_packages["Triton interprets"] == "1"


def test_events_measure_time(in_packages: dict[str, Any]) -> None:
    assert in_packages["elapsed"] is True


def test_extension_takes_free_pages_in_order_for_new_requests(in_packages: dict[str, Any]) -> None:
    assert in_packages["fresh requests"] == [28, 29, 30, 31, 20, 24, 25]


def test_extension_fills_the_last_page_before_it_takes_another(in_packages: dict[str, Any]) -> None:
    assert in_packages["grown requests"] == [43, 28, 29, 20]
    assert in_packages["within a page"] == [9, 10]


def test_no_npu_is_emulated_beside_a_real_one(in_refusals: dict[str, Any]) -> None:
    assert "A real NPU is here (/dev/davinci0" in in_refusals["beside a device"]
    assert in_refusals["torch imported"] is False


def test_an_npu_is_emulated_beside_a_real_one_when_told_to(in_refusals: dict[str, Any]) -> None:
    assert in_refusals["told to"] is None


def test_no_npu_is_emulated_once_sglang_is_imported(in_refusals: dict[str, Any]) -> None:
    assert "sglang is imported already" in in_refusals["after sglang"]
