"""A tiny wheel of a made-up sglang."""

import base64
import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

from harness.subject.source import ASCEND_BACKEND


def recorded_hash(content: bytes) -> str:
    """The sha256 of a file as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def write_wheel(
    directory: Path,
    release: str = "0.5.18",
    extra: dict[str, bytes] | None = None,
    record: Callable[[str], str] = lambda record: record,
    compression: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """Write a tiny wheel; `record` may falsify its RECORD."""
    info = f"sglang-{release}.dist-info"
    files = {
        "sglang/__init__.py": b"'''A made-up sglang.'''\n",
        ASCEND_BACKEND: b"class AscendAttnBackend: ...\n",
        "sglang/data/table.json": b"{}",
        "sglang/_native.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
        "tools/release.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.4\nName: sglang\nVersion: {release}\n".encode(),
        **(extra or {}),
    }
    lines = [f"{name},sha256={recorded_hash(content)},{len(content)}\n" for name, content in files.items()]
    lines.append(f"{info}/RECORD,,\n")
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"sglang-{release}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", record("".join(lines)))
    return wheel


def bad_record(content: bytes) -> Callable[[str], str]:
    """For `write_wheel`: lets the file with this content fail its hash."""
    return lambda record: record.replace(recorded_hash(content), "wrong")
