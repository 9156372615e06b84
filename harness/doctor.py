"""What this machine can run, and what is missing for each subject."""

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import NamedTuple

from harness.cache import cache_dir
from harness.errors import UsageError
from harness.subject import wheels
from harness.subject.source import resolve


class Item(NamedTuple):
    """One line of the doctor's report: what, whether it is there, and what was found or what to do."""

    name: str
    present: bool
    detail: str


def version(package: str) -> str:
    """Version of an installed distribution, or an empty string."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def npu_devices() -> list[str]:
    """Device nodes of Ascend NPUs (`/dev/davinci0`, …)."""
    return sorted(str(path) for path in Path("/dev").glob("davinci[0-9]*"))


def has_npu() -> bool:
    """Whether a real NPU can be used: a device node, and torch_npu to drive it."""
    return bool(npu_devices()) and bool(version("torch_npu"))


def cann_version() -> str:
    """CANN's version, from its environment variable or its installation folder, or an empty string."""
    home = os.environ.get("ASCEND_TOOLKIT_HOME") or os.environ.get("ASCEND_HOME_PATH") or ""
    if not home:
        return ""
    for line in _lines(Path(home, "version.cfg")) + _lines(Path(home, "version.info")):
        if "version" in line.lower() and "=" in line:
            return line.split("=", 1)[1].strip(" []")
    return Path(home).name


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def examine() -> list[Item]:
    """Everything that decides which subjects can run here."""
    torch = version("torch")
    torch_npu = version("torch_npu")
    nodes = npu_devices()
    cann = cann_version()
    gpus = sorted(str(path) for path in Path("/dev").glob("nvidia[0-9]*"))
    cached = wheels.cached_releases()
    try:
        installed = resolve("installed")
        sglang = Item("sglang", True, f"installed: {installed.release} in {installed.path}")
    except UsageError as error:
        sglang = Item("sglang", False, str(error))
    return [
        Item("python", True, f"{sys.version.split()[0]} on {platform.system()} {platform.machine()}"),
        Item("torch", bool(torch), torch or "missing: pip install torch==2.13.0"),
        Item("torch_npu", bool(torch_npu), torch_npu or "missing: install the build of your CANN for a real NPU"),
        Item("CANN", bool(cann), cann or "missing: source set_env.sh of the toolkit for a real NPU"),
        Item("NPU", bool(nodes), ", ".join(nodes) or "no /dev/davinci* here"),
        Item("GPU", bool(gpus), ", ".join(gpus) or "no /dev/nvidia* here"),
        sglang,
        Item("cached releases", bool(cached), ", ".join(cached) or f"none in {cache_dir()}: run `harness scan`"),
    ]


def subjects(items: list[Item]) -> list[Item]:
    """Which subjects can be run, and what the others lack."""
    present = {item.name for item in items if item.present}
    any_sglang = bool(present & {"sglang", "cached releases"})
    source = [] if any_sglang else ["an sglang (install one, or run `harness scan` once with a network)"]
    emulated = source + ([] if "torch" in present else ["torch"])
    real = source + [name for name in ("torch", "torch_npu", "CANN", "NPU") if name not in present]
    gpu = emulated + ([] if "GPU" in present else ["GPU"])
    flashinfer = gpu + ([] if version("flashinfer-python") else ["flashinfer-python"])
    fa3 = gpu + ([] if version("sglang-kernel") else ["sglang-kernel"])
    return [
        Item("ascend, emulated NPU", not emulated, _lacks(emulated)),
        Item("ascend, real NPU", not real, _lacks(real)),
        Item("triton, interpreted", not emulated, _lacks(emulated)),
        Item("cuda", not gpu, _lacks(gpu)),
        Item("fa3, emulated kernels", not emulated, _lacks(emulated)),
        Item("fa3", not fa3, _lacks(fa3)),
        Item("flashinfer, emulated kernels", not emulated, _lacks(emulated)),
        Item("flashinfer", not flashinfer, _lacks(flashinfer)),
    ]


def _lacks(missing: list[str]) -> str:
    return f"missing: {', '.join(missing)}" if missing else "ready"
