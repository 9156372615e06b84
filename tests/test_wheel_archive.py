"""Unpacking and pinning made-up wheels, whole and damaged."""

import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import CannotJudge, Exit, UsageError
from harness.subject import wheel_archive
from harness.subject.source import ASCEND_BACKEND
from tests.fake_wheel import bad_record, write_wheel


def unpacked(wheel: Path) -> dict[str, bytes]:
    """Unpack a wheel as one of 0.5.18, beside itself; returns what was written."""
    with tempfile.TemporaryDirectory(dir=wheel.parent) as directory:
        tree = Path(directory)
        wheel_archive.unpack(wheel, "0.5.18", tree)
        return {str(file.relative_to(tree)): file.read_bytes() for file in tree.rglob("*") if file.is_file()}


def test_an_unpacked_wheel_has_its_python_and_data_but_no_binaries(tmp_path: Path) -> None:
    assert sorted(unpacked(write_wheel(tmp_path))) == [
        "sglang-0.5.18.dist-info/METADATA",
        "sglang-0.5.18.dist-info/RECORD",
        "sglang/__init__.py",
        "sglang/data/table.json",
        ASCEND_BACKEND,
    ]


def test_a_wheel_that_fails_its_pinned_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path)
    hashes = tmp_path / "hashes.json"
    hashes.write_text(f'{{"{wheel.name}": "{"0" * 64}"}}')
    monkeypatch.setattr(wheel_archive, "PINNED_HASHES", hashes)
    with pytest.raises(CannotJudge, match=r"0.5.18 failed its hash: expected sha256 0000.* but got .*run again"):
        unpacked(wheel)


def test_a_file_that_fails_its_recorded_hash_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, extra={"sglang/z.py": b"1"}, record=bad_record(b"1"))
    with pytest.raises(CannotJudge, match=r"failed its hash: expected sha256 wrong for sglang/z.py"):
        unpacked(wheel)


def test_a_binary_that_is_not_unpacked_is_checked_all_the_same(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, record=lambda record: record.replace(".so,sha256=", ".so,sha256=x"))
    with pytest.raises(CannotJudge, match=r"failed its hash: .*\.so"):
        unpacked(wheel)


@pytest.mark.parametrize(
    "falsify",
    [
        lambda record: record.replace("sglang/data/table.json", "sglang/data/other.json"),
        lambda record: record + "sglang/missing.py,sha256=x,1\n",
        lambda record: record.replace("sglang/data/table.json,sha256=", "sglang/data/table.json,md5="),
        lambda record: "",
    ],
    ids=["renamed", "missing", "other hash", "empty"],
)
def test_a_wheel_must_hold_the_files_its_record_lists(falsify: Callable[[str], str], tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, record=falsify)
    with pytest.raises(CannotJudge, match=r"0.5.18 (is damaged|failed its hash)"):
        unpacked(wheel)


def test_a_wheel_of_another_release_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, "0.5.17")
    with pytest.raises(CannotJudge, match=r"0.5.18 is damaged"):
        unpacked(wheel)


@pytest.mark.parametrize(
    "name",
    ["../outside.py", "sglang/../../outside.py", "/outside.py", "sglang\\..\\outside.py", "C:outside.py"],
)
def test_a_wheel_that_names_a_file_outside_itself_is_refused(name: str, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "index", extra={name: b""})
    with pytest.raises(CannotJudge, match="a file outside itself"):
        unpacked(wheel)
    assert not list(tmp_path.rglob("*outside.py"))


def test_a_wheel_cut_anywhere_is_refused(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path)
    content = wheel.read_bytes()
    for length in range(0, len(content), 7):
        wheel.write_bytes(content[:length])
        with pytest.raises(CannotJudge, match=r"0.5.18 is damaged"):
            unpacked(wheel)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_flipped_byte_is_refused_or_changes_no_unpacked_file(compression: int, tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, compression=compression)
    content = wheel.read_bytes()

    def vouched_for() -> dict[str, bytes]:
        # RECORD lists no hash of itself, so only what it vouches for can be held against the original.
        return {name: data for name, data in unpacked(wheel).items() if not name.endswith("RECORD")}

    original = vouched_for()
    refused = 0
    for place in range(0, len(content), 5):
        wheel.write_bytes(content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :])
        try:
            assert vouched_for() == original, place
        except CannotJudge:
            refused += 1
    assert refused > len(content) / 5 / 2


def test_a_pinned_wheel_passes_and_a_pin_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel_archive, "PINNED_HASHES", tmp_path / "hashes.json")
    wheel = write_wheel(tmp_path)
    wheel_archive.pin([wheel])
    assert unpacked(wheel)
    write_wheel(tmp_path, extra={"sglang/other.py": b""})
    with pytest.raises(UsageError, match="but is pinned as"):
        wheel_archive.pin([wheel])


def test_the_command_pin_tells_wrong_use_by_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheel_archive, "PINNED_HASHES", tmp_path / "hashes.json")
    assert wheel_archive._main(["pin", str(write_wheel(tmp_path))]) == Exit.PASSED
    assert wheel_archive._main(["pin"]) == Exit.USAGE
    assert wheel_archive._main(["pin", str(tmp_path / "missing.whl")]) == Exit.USAGE
    assert "missing.whl cannot be pinned" in capsys.readouterr().err


def test_the_pinned_hashes_are_of_wheels_of_sglang() -> None:
    pinned = wheel_archive._pinned_hashes()
    assert len(pinned) >= 9
    assert all(name.startswith("sglang-") and name.endswith(".whl") for name in pinned)
    assert all(len(bytes.fromhex(digest)) == 32 for digest in pinned.values())
