"""The drivers' versions are read from what their files say; what is not there has no key."""

from pathlib import Path

import pytest

from harness.subject.device_driver import ascend_driver, cuda_driver, nvidia_driver, of_gpu, of_npu

CLOSED = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Tue Mar  5 22:42:15 UTC 2024
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)
"""
OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  570.86.15  Release Build  (builder@host)  2025
GCC version:  13.3.0
"""
ASCEND = "Version=24.1.rc2\nascendhal_version=7.35.23\naicpu_version=1.0\n"


@pytest.mark.parametrize(("text", "version"), [(CLOSED, "535.161.08"), (OPEN, "570.86.15"), ("", ""), ("NVRM", "")])
def test_nvidias_driver_is_named_by_its_module_and_not_by_the_compiler(text: str, version: str) -> None:
    assert nvidia_driver(text) == version
    assert nvidia_driver(text.removesuffix("\n")) == version


@pytest.mark.parametrize(("number", "version"), [(12040, "12.4"), (13000, "13.0"), (11080, "11.8"), (12110, "12.11")])
def test_cudas_number_is_a_version(number: int, version: str) -> None:
    assert cuda_driver(number) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [(ASCEND, "24.1.rc2"), ("ascendhal_version=7.35.23\n", ""), ("version = 23.0.3 \n", "23.0.3"), ("", "")],
)
def test_the_ascend_drivers_own_version_is_taken_and_not_that_of_a_part(text: str, version: str) -> None:
    assert ascend_driver(text) == version


def test_what_is_not_there_has_no_key(tmp_path: Path) -> None:
    assert of_gpu(tmp_path / "none", "libnone.so.1") == {}
    assert of_npu(tmp_path / "none") == {}
    (tmp_path / "version").write_bytes(b"\xff\xfe nothing of the kind")
    assert of_gpu(tmp_path / "version", "libc.so.6") == {}
    assert of_npu(tmp_path / "version") == {}


def test_what_is_there_has_its_key(tmp_path: Path) -> None:
    (tmp_path / "version").write_text(OPEN)
    (tmp_path / "version.info").write_text(ASCEND)
    assert of_gpu(tmp_path / "version", "libnone.so.1") == {"nvidia_driver": "570.86.15"}
    assert of_npu(tmp_path / "version.info") == {"ascend_driver": "24.1.rc2"}
