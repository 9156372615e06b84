"""The cache of releases, with made-up wheels and without a network."""

import base64
import errno
import hashlib
import multiprocessing
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import CannotJudge, Exit, UsageError
from harness.subject import wheels

ASCEND = "sglang/srt/hardware_backend/npu/attention/ascend_backend.py"

OFFLINE = (
    "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(': Failed to establish a "
    "new connection: [Errno -3] Temporary failure in name resolution')'\n"
    "ERROR: Could not find a version that satisfies the requirement sglang==1 (from versions: none)\n"
    "ERROR: No matching distribution found for sglang==1\n"
)

UNKNOWN_RELEASE = (
    "ERROR: Could not find a version that satisfies the requirement sglang==0.5.99 "
    "(from versions: 0.5.10rc0, 0.5.15, 0.5.15.post1, 0.5.16, 0.5.17)\n"
    "ERROR: No matching distribution found for sglang==0.5.99\n"
)


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
        ASCEND: b"class AscendAttnBackend: ...\n",
        "sglang/data/table.json": b"{}",
        "sglang/_native.cpython-311-x86_64-linux-gnu.so": b"\x7fELF",
        "tools/release.py": b"",
        f"{info}/METADATA": f"Metadata-Version: 2.4\nName: sglang\nVersion: {release}\n".encode(),
        **(extra or {}),
    }
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    lines.append(f"{info}/RECORD,,\n")
    directory.mkdir(parents=True, exist_ok=True)
    wheel = directory / f"sglang-{release}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", record("".join(lines)))
    return wheel


def answer(returncode: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


def deliver(monkeypatch: pytest.MonkeyPatch, wheel: Path) -> list[tuple[str, ...]]:
    """Make pip download `wheel`; returns the calls of pip, as they come."""
    calls: list[tuple[str, ...]] = []

    def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        calls.append(arguments)
        shutil.copy(wheel, arguments[arguments.index("-d") + 1])
        return answer(0)

    monkeypatch.setattr(wheels, "_run_pip", run_pip)
    return calls


def reply(monkeypatch: pytest.MonkeyPatch, *, returncode: int = 0, stdout: str = "", stderr: str = "") -> None:
    monkeypatch.setattr(wheels, "_run_pip", lambda *arguments: answer(returncode, stdout, stderr))


def list_releases(monkeypatch: pytest.MonkeyPatch, *releases: str) -> None:
    reply(monkeypatch, stdout=f"sglang ({releases[0]})\nAvailable versions: {', '.join(releases)}\n")


def cache(*releases: str) -> None:
    for release in releases:
        directory = wheels.cache_dir() / "releases" / release
        for name in ("sglang/__init__.py", f"sglang-{release}.dist-info/RECORD"):
            (directory / name).parent.mkdir(parents=True)
            (directory / name).touch()


def left_behind() -> list[str]:
    return [path.name for path in wheels.cache_dir().rglob("*") if path.name != "releases"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_OFFLINE", raising=False)


def test_the_cache_is_where_harness_cache_says_before_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("HARNESS_CACHE", "/named")
    assert wheels.cache_dir() == Path("/named")
    monkeypatch.delenv("HARNESS_CACHE")
    assert wheels.cache_dir() == Path("/elsewhere/sglang-ascend-harness")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert wheels.cache_dir() == Path.home() / ".cache/sglang-ascend-harness"


def test_a_fetched_release_has_its_python_and_data_but_no_binaries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(monkeypatch, write_wheel(tmp_path))
    said: list[str] = []
    path = wheels.fetch("0.5.18", said.append)
    assert sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()) == [
        "sglang-0.5.18.dist-info/METADATA",
        "sglang-0.5.18.dist-info/RECORD",
        "sglang/__init__.py",
        "sglang/data/table.json",
        ASCEND,
    ]
    assert said == ["Downloading sglang 0.5.18", "Checking and unpacking sglang 0.5.18"]
    assert wheels.cached_releases() == ["0.5.18"]
    assert [entry.name for entry in path.parent.iterdir()] == ["0.5.18"]


def test_a_cached_release_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deliver(monkeypatch, write_wheel(tmp_path))
    assert wheels.fetch("0.5.18") == wheels.fetch("v0.5.18")
    assert len(calls) == 1


def test_a_download_neither_installs_nor_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deliver(monkeypatch, write_wheel(tmp_path))
    wheels.fetch("0.5.18")
    assert calls[0][0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "sglang==0.5.18"} <= set(calls[0])


def test_cached_releases_are_in_the_order_of_versions_and_whole() -> None:
    cache("0.5.9", "0.5.15.post1", "0.5.15", "0.5.10")
    (wheels.cache_dir() / "releases" / "0.5.11" / "sglang").mkdir(parents=True)
    (wheels.cache_dir() / "releases" / ".0.5.12-x").mkdir()
    assert wheels.cached_releases() == ["0.5.9", "0.5.10", "0.5.15", "0.5.15.post1"]


def test_a_damaged_cached_release_is_named_and_not_used() -> None:
    (wheels.cache_dir() / "releases" / "0.5.18" / "sglang").mkdir(parents=True)
    with pytest.raises(CannotJudge, match=r"0.5.18 is a damaged copy .* delete it"):
        wheels.fetch("0.5.18")


def test_a_wheel_that_fails_its_pinned_hash_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path)
    hashes = tmp_path / "hashes.json"
    hashes.write_text(f'{{"{wheel.name}": "{"0" * 64}"}}')
    monkeypatch.setattr(wheels, "PINNED_HASHES", hashes)
    deliver(monkeypatch, wheel)
    with pytest.raises(CannotJudge, match=r"0.5.18 failed its hash: expected sha256 0000.* but got .*run again"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


def test_a_file_that_fails_its_recorded_hash_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The last file but RECORD, so that others are written already.
    wheel = write_wheel(
        tmp_path,
        extra={"sglang/z.py": b"1"},
        record=lambda record: record.replace(
            base64.urlsafe_b64encode(hashlib.sha256(b"1").digest()).decode().rstrip("="), "wrong"
        ),
    )
    deliver(monkeypatch, wheel)
    with pytest.raises(CannotJudge, match=r"failed its hash: expected sha256 wrong for sglang/z.py"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


def test_a_binary_that_is_not_unpacked_is_checked_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path, record=lambda record: record.replace(".so,sha256=", ".so,sha256=x"))
    deliver(monkeypatch, wheel)
    with pytest.raises(CannotJudge, match=r"failed its hash: .*\.so"):
        wheels.fetch("0.5.18")


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
def test_a_wheel_must_hold_the_files_its_record_lists(
    falsify: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(monkeypatch, write_wheel(tmp_path, record=falsify))
    with pytest.raises(CannotJudge, match=r"0.5.18 (is damaged|failed its hash)"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


def test_a_wheel_of_another_release_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(monkeypatch, write_wheel(tmp_path, "0.5.17"))
    with pytest.raises(CannotJudge, match=r"0.5.18 is damaged"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


@pytest.mark.parametrize(
    "name",
    ["../outside.py", "sglang/../../outside.py", "/outside.py", "sglang\\..\\outside.py", "C:outside.py"],
)
def test_a_wheel_that_names_a_file_outside_itself_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(monkeypatch, write_wheel(tmp_path / "index", extra={name: b""}))
    with pytest.raises(CannotJudge, match="a file outside itself"):
        wheels.fetch("0.5.18")
    assert left_behind() == []
    assert not list(tmp_path.rglob("*outside.py"))


def test_a_wheel_cut_anywhere_is_refused_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path / "index")
    content = wheel.read_bytes()
    deliver(monkeypatch, wheel)
    for length in range(0, len(content), 7):
        wheel.write_bytes(content[:length])
        with pytest.raises(CannotJudge, match=r"0.5.18 is damaged"):
            wheels.fetch("0.5.18")
        assert left_behind() == []


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_flipped_byte_is_refused_or_changes_no_unpacked_file(
    compression: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path / "index", compression=compression)
    content = wheel.read_bytes()
    deliver(monkeypatch, wheel)

    def unpacked(path: Path) -> dict[str, bytes]:
        files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
        shutil.rmtree(path)
        # RECORD lists no hash of itself, so only what it vouches for can be held against the original.
        return {name: data for name, data in files.items() if not name.endswith("RECORD")}

    original = unpacked(wheels.fetch("0.5.18"))
    refused = 0
    for place in range(0, len(content), 5):
        wheel.write_bytes(content[:place] + bytes([content[place] ^ 0x15]) + content[place + 1 :])
        try:
            path = wheels.fetch("0.5.18")
        except CannotJudge:
            refused += 1
        else:
            assert unpacked(path) == original, place
        assert left_behind() == []
    assert refused > len(content) / 5 / 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named_and_leaves_nothing_behind(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(monkeypatch, write_wheel(tmp_path))
    interrupt_writing(monkeypatch, OSError(number, "full"))
    with pytest.raises(CannotJudge, match=r"there is no space left in .*cache.releases: .*HARNESS_CACHE"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


def test_an_interrupted_unpacking_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(monkeypatch, write_wheel(tmp_path))
    interrupt_writing(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        wheels.fetch("0.5.18")
    assert left_behind() == []


def interrupt_writing(monkeypatch: pytest.MonkeyPatch, exception: BaseException) -> None:
    """Raise after two files are written and a third is begun."""
    write_bytes = Path.write_bytes
    written: list[Path] = []

    def write(path: Path, data: bytes) -> int:
        written.append(path)
        if len(written) == 3:
            write_bytes(path, data[:1])
            raise exception
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where the directory should be")
    deliver(monkeypatch, write_wheel(tmp_path))
    with pytest.raises(CannotJudge, match=r"cannot be written .*HARNESS_CACHE"):
        wheels.fetch("0.5.18")


def test_a_release_that_another_process_fetched_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path)

    def slower(*arguments: str) -> subprocess.CompletedProcess[str]:
        deliver(monkeypatch, wheel)
        (wheels.fetch("0.5.18") / "first").touch()
        shutil.copy(wheel, arguments[arguments.index("-d") + 1])
        return answer(0)

    monkeypatch.setattr(wheels, "_run_pip", slower)
    path = wheels.fetch("0.5.18")
    assert (path / "first").exists()
    assert [entry.name for entry in path.parent.iterdir()] == ["0.5.18"]


def test_processes_that_fetch_the_same_release_at_once_all_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(tmp_path)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)

    def run_pip(*arguments: str) -> subprocess.CompletedProcess[str]:
        shutil.copy(wheel, arguments[arguments.index("-d") + 1])
        barrier.wait(timeout=60)  # until each has found the release not cached
        return answer(0)

    monkeypatch.setattr(wheels, "_run_pip", run_pip)
    processes = [context.Process(target=wheels.fetch, args=("0.5.18",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert [entry.name for entry in (wheels.cache_dir() / "releases").iterdir()] == ["0.5.18"]
    assert wheels.cached_releases() == ["0.5.18"]


def test_an_unknown_release_is_wrong_use_and_the_nearest_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr=UNKNOWN_RELEASE)
    with pytest.raises(UsageError, match=r"no sglang 0.5.99 .*nearest are 0.5.15.post1, 0.5.16, 0.5.17\."):
        wheels.fetch("0.5.99")
    assert left_behind() == []


@pytest.mark.parametrize("word", ["main", "", "0.5.18 --index-url=x", "../0.5.18"])
def test_a_word_that_is_no_version_is_wrong_use(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1)
    with pytest.raises(UsageError, match="is no release of sglang"):
        wheels.fetch(word)


@pytest.mark.parametrize(
    "stderr",
    [
        OFFLINE,
        "ERROR: Could not find a version that satisfies the requirement sglang==1 (from versions: none)\n",
        "pip._vendor.urllib3.exceptions.ReadTimeoutError: Read timed out.\n",
        "WARNING: 'ProxyError('Cannot connect to proxy.'\nERROR: No matching distribution found for sglang\n",
        "ERROR: HTTP error 503 while getting a file\nERROR: 503 Server Error: Service Unavailable\n",
    ],
    ids=["no name resolution", "without retries", "timeout", "proxy", "server error"],
)
def test_without_a_network_no_verdict_is_given_and_the_cached_releases_are_named(
    stderr: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache("0.5.15", "0.5.16")
    reply(monkeypatch, returncode=1, stderr=stderr)
    with pytest.raises(CannotJudge, match=r"cannot be reached: use a cached release \(0.5.15, 0.5.16\)\."):
        wheels.fetch("0.5.18")


def test_without_a_network_and_a_cache_a_checkout_is_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr=OFFLINE)
    with pytest.raises(CannotJudge, match="cannot be reached: no release is cached, so name a checkout"):
        wheels.fetch("0.5.18")


def test_a_full_disk_in_pip_is_told_from_a_missing_network(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="ERROR: Could not install: [Errno 28] No space left on device\n")
    with pytest.raises(CannotJudge, match="no space left for the download"):
        wheels.fetch("0.5.18")


def test_any_other_failure_of_pip_is_told_in_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="/usr/bin/python: No module named pip\n")
    with pytest.raises(CannotJudge, match="No module named pip"):
        wheels.fetch("0.5.18")
    with pytest.raises(CannotJudge, match="No module named pip"):
        wheels.available_releases()


def test_harness_offline_keeps_pip_from_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    monkeypatch.setattr(wheels, "_run_pip", lambda *arguments: pytest.fail("pip was run"))
    with pytest.raises(CannotJudge, match="HARNESS_OFFLINE forbids a download"):
        wheels.fetch("0.5.18")
    with pytest.raises(CannotJudge, match="HARNESS_OFFLINE"):
        wheels.available_releases()
    cache("0.5.18")
    assert wheels.fetch("0.5.18").name == "0.5.18"


def test_available_releases_are_final_or_post_and_in_the_order_of_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_releases(monkeypatch, "0.5.15.post1", "0.5.15", "0.5.10", "0.5.10rc0", "0.5.9", "0.6.0.dev1")
    assert wheels.available_releases() == ["0.5.9", "0.5.10", "0.5.15", "0.5.15.post1"]


def test_an_index_that_does_not_answer_has_no_releases_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="ERROR: No matching distribution found for sglang\n")
    with pytest.raises(CannotJudge, match="it cannot be reached"):
        wheels.available_releases()


def test_a_range_goes_from_the_first_supported_release_to_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    list_releases(monkeypatch, "0.5.17", "0.5.15.post1", "0.5.15", "0.5.14")
    cache("0.5.16")
    assert wheels.releases_between(None, None) == ["0.5.15", "0.5.15.post1", "0.5.16", "0.5.17"]
    assert wheels.releases_between("0.5.14", "0.5.15") == ["0.5.14", "0.5.15"]


@pytest.mark.parametrize(("first", "last"), [("0.5.18", None), (None, "0.5.18")])
def test_an_end_that_does_not_exist_is_wrong_use(
    first: str | None, last: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_releases(monkeypatch, "0.5.17", "0.5.16")
    with pytest.raises(UsageError, match=r"no release 0.5.18 of sglang: the nearest are 0.5.16, 0.5.17"):
        wheels.releases_between(first, last)


@pytest.mark.parametrize(("first", "last"), [("0.5.17", "0.5.16"), (None, "0.5.14")])
def test_a_range_that_holds_nothing_is_wrong_use(
    first: str | None, last: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_releases(monkeypatch, "0.5.17", "0.5.16", "0.5.14")
    with pytest.raises(UsageError, match=r"lies between .* name the older end first"):
        wheels.releases_between(first, last)


def test_without_an_index_a_range_is_of_cached_releases_and_the_caller_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply(monkeypatch, returncode=1, stderr=OFFLINE)
    cache("0.5.16", "0.5.17")
    told: list[str] = []
    assert wheels.releases_between(None, None, told.append) == ["0.5.16", "0.5.17"]
    assert len(told) == 1
    assert "only cached releases" in told[0]
    with pytest.raises(CannotJudge, match=r"0.5.18 is not among the cached releases \(0.5.16, 0.5.17\)"):
        wheels.releases_between("0.5.18", None)


def test_without_an_index_and_a_cache_there_is_no_range(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr=OFFLINE)
    with pytest.raises(CannotJudge, match="no release of sglang is cached"):
        wheels.releases_between(None, None)


def test_a_pinned_wheel_passes_and_a_pin_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheels, "PINNED_HASHES", tmp_path / "hashes.json")
    wheel = write_wheel(tmp_path)
    wheels.pin([wheel])
    deliver(monkeypatch, wheel)
    assert wheels.fetch("0.5.18").is_dir()
    write_wheel(tmp_path, extra={"sglang/other.py": b""})
    with pytest.raises(UsageError, match="but is pinned as"):
        wheels.pin([wheel])


def test_the_command_pin_tells_wrong_use_by_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wheels, "PINNED_HASHES", tmp_path / "hashes.json")
    assert wheels._main(["pin", str(write_wheel(tmp_path))]) == Exit.PASSED
    assert wheels._main(["pin"]) == Exit.USAGE
    assert wheels._main(["pin", str(tmp_path / "missing.whl")]) == Exit.USAGE
    assert "missing.whl cannot be pinned" in capsys.readouterr().err


def test_the_pinned_hashes_are_of_wheels_of_sglang() -> None:
    pinned = wheels._pinned_hashes()
    assert len(pinned) >= 9
    assert all(name.startswith("sglang-") and name.endswith(".whl") for name in pinned)
    assert all(len(bytes.fromhex(digest)) == 32 for digest in pinned.values())
