"""The emulation asked for by the environment, in processes that only import torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.subject.source import ASCEND_BACKEND
from tests.engine.entry_point import declare

_SHOW = """
import torch
print(hasattr(torch, "npu") and torch.npu.get_device_name())
"""
_SPAWN = """
import multiprocessing


def show():
    import torch

    print(torch.ones(2, device="npu").sum().item())


if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=show)
    child.start()
    child.join()
"""
_BESIDE_DEVICE = """
from harness.npu import presence

presence.real_device = lambda: "/dev/davinci0"
import torch
print(torch.npu.is_available())
"""
_LOADED = """
import sys
import torch
print(sorted(name for name in sys.modules if name.startswith("harness")))
"""
_FROM_SGLANG = """
import sys
sys.modules["sglang"] = sys.modules["__main__"]  # as while `import sglang` imports torch
import torch
print(torch.npu.is_available())
"""


@pytest.fixture(scope="module")
def module_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return declare(tmp_path_factory.mktemp("declared"))


def _run(code: str, module_path: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(code)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_NPU_")}
    return subprocess.run(
        [sys.executable, str(script)],
        env=clean | {"PYTHONPATH": module_path} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    "code, printed", [(_SHOW, "Ascend910B (emulated)\n"), (_SPAWN, "2.0\n"), (_FROM_SGLANG, "True\n")]
)
def test_asked_for_import_torch_emulates_an_npu(code: str, printed: str, module_path: str, tmp_path: Path) -> None:
    done = _run(code, module_path, tmp_path, HARNESS_NPU_EMULATE="1")

    assert done.stdout == printed, done.stderr


@pytest.mark.parametrize("value", [None, "0", ""])
def test_not_asked_for_import_torch_loads_nothing_that_emulates(
    value: str | None, module_path: str, tmp_path: Path
) -> None:
    environment = {} if value is None else {"HARNESS_NPU_EMULATE": value}
    shown, loaded = (_run(code, module_path, tmp_path, **environment) for code in (_SHOW, _LOADED))

    assert shown.stdout == "False\n", shown.stderr
    assert loaded.stdout == "['harness', 'harness.npu', 'harness.npu.autoload', 'harness.npu.presence']\n"


def test_beside_a_real_device_import_torch_is_refused_unless_that_is_allowed(module_path: str, tmp_path: Path) -> None:
    refused = _run(_BESIDE_DEVICE, module_path, tmp_path, HARNESS_NPU_EMULATE="1")
    allowed = _run(_BESIDE_DEVICE, module_path, tmp_path, HARNESS_NPU_EMULATE="1", HARNESS_NPU_BESIDE_DEVICE="1")

    assert refused.returncode != 0
    assert "A real NPU is here (/dev/davinci0" in refused.stderr
    assert allowed.stdout == "True\n", allowed.stderr


def _install_torch_npu(folder: Path) -> str:
    """Something like the real package, which `import torch` loads by the same means; returns its folder."""
    declared = folder / "torch_npu-2.dist-info"
    declared.mkdir(parents=True)
    (declared / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-npu\nVersion: 2\n")
    (declared / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    (folder / "torch_npu.py").write_text("def _autoload():\n    print('the real one')\n")
    return str(folder)


def test_an_installed_torch_npu_is_replaced_where_ours_comes_first_and_refused_where_it_does(
    module_path: str, tmp_path: Path
) -> None:
    installed = _install_torch_npu(tmp_path / "installed")
    first = _run(_SHOW, f"{module_path}:{installed}", tmp_path, HARNESS_NPU_EMULATE="1")
    last = _run(_SHOW, f"{installed}:{module_path}", tmp_path, HARNESS_NPU_EMULATE="1")

    assert first.stdout == "Ascend910B (emulated)\n", first.stderr
    assert last.returncode != 0
    assert "`import torch` has loaded the torch_npu that is installed here" in last.stderr


_ENVIRONMENT = (
    "import os, sys; print(os.environ['HARNESS_NPU_EMULATE'], os.environ['PYTHONPATH'].split(':')[0], sys.argv)"
)


def _emulate(module_path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "emulate", *arguments],
        env=os.environ | {"PYTHONPATH": module_path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def sglang(tmp_path: Path) -> str:
    for name in ("sglang/__init__.py", ASCEND_BACKEND):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return str(tmp_path)


def test_emulate_runs_a_command_with_the_emulation_and_the_sglang_that_is_named(module_path: str, sglang: str) -> None:
    done = _emulate(module_path, "--sglang", sglang, sys.executable, "-c", _ENVIRONMENT, "--device", "npu")
    failed = _emulate(module_path, "--sglang", sglang, sys.executable, "-c", "exit(7)")

    assert done.stdout == f"1 {sglang} ['-c', '--device', 'npu']\n", done.stderr
    assert failed.returncode == 7


def test_emulate_refuses_a_command_that_there_is_not(module_path: str, sglang: str) -> None:
    done = _emulate(module_path, "--sglang", sglang, "no-such-command")

    assert done.returncode == 2
    assert "no-such-command cannot be run: No such file or directory." in done.stderr
