"""The cache of releases, with made-up wheels and without a network."""

import errno
import multiprocessing
import subprocess
from pathlib import Path

import pytest

from harness.cache import cache_dir
from harness.errors import CannotJudge, UsageError
from harness.subject import package_index, wheels
from tests.fake_pip import OFFLINE, deliver, hand_over, list_releases, reply
from tests.fake_wheel import bad_record, write_wheel


def cache(*releases: str) -> None:
    for release in releases:
        directory = cache_dir() / "releases" / release
        for name in ("sglang/__init__.py", f"sglang-{release}.dist-info/RECORD"):
            (directory / name).parent.mkdir(parents=True)
            (directory / name).touch()


def left_behind() -> list[str]:
    return [path.name for path in cache_dir().rglob("*") if path.name != "releases"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_OFFLINE", raising=False)


def test_the_cache_is_where_harness_cache_says_before_where_xdg_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    monkeypatch.setenv("HARNESS_CACHE", "/named")
    assert cache_dir() == Path("/named")
    monkeypatch.delenv("HARNESS_CACHE")
    assert cache_dir() == Path("/elsewhere/sglang-ascend-harness")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache/sglang-ascend-harness"


def test_a_fetched_release_is_cached_and_its_progress_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(monkeypatch, write_wheel(tmp_path))
    said: list[str] = []
    path = wheels.fetch("0.5.18", said.append)
    assert (path / "sglang" / "__init__.py").is_file()
    assert said == ["Downloading sglang 0.5.18", "Checking and unpacking sglang 0.5.18"]
    assert wheels.cached_releases() == ["0.5.18"]
    assert [entry.name for entry in path.parent.iterdir()] == ["0.5.18"]


def test_a_cached_release_is_not_downloaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deliver(monkeypatch, write_wheel(tmp_path))
    assert wheels.fetch("0.5.18") == wheels.fetch("v0.5.18")
    assert len(calls) == 1


def test_a_cached_release_is_used_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    cache("0.5.18")
    assert wheels.fetch("0.5.18").name == "0.5.18"


def test_cached_releases_are_in_the_order_of_versions_and_whole() -> None:
    cache("0.5.9", "0.5.15.post1", "0.5.15", "0.5.10")
    (cache_dir() / "releases" / "0.5.11" / "sglang").mkdir(parents=True)
    (cache_dir() / "releases" / ".0.5.12-x").mkdir()
    assert wheels.cached_releases() == ["0.5.9", "0.5.10", "0.5.15", "0.5.15.post1"]


def test_a_damaged_cached_release_is_named_and_not_used() -> None:
    (cache_dir() / "releases" / "0.5.18" / "sglang").mkdir(parents=True)
    with pytest.raises(CannotJudge, match=r"0.5.18 is a damaged copy .* delete it"):
        wheels.fetch("0.5.18")


def test_a_refused_wheel_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last file but RECORD, so that others are written already.
    wheel = write_wheel(tmp_path, extra={"sglang/z.py": b"1"}, record=bad_record(b"1"))
    deliver(monkeypatch, wheel)
    with pytest.raises(CannotJudge, match="failed its hash"):
        wheels.fetch("0.5.18")
    assert left_behind() == []


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
        return hand_over(wheel, *arguments)

    monkeypatch.setattr(package_index, "_run_pip", slower)
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
        barrier.wait(timeout=60)  # until each has found the release not cached
        return hand_over(wheel, *arguments)

    monkeypatch.setattr(package_index, "_run_pip", run_pip)
    processes = [context.Process(target=wheels.fetch, args=("0.5.18",)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0, 0]
    assert [entry.name for entry in (cache_dir() / "releases").iterdir()] == ["0.5.18"]
    assert wheels.cached_releases() == ["0.5.18"]


def test_a_refused_download_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="ERROR: No matching distribution found for sglang==0.5.99\n")
    with pytest.raises(UsageError, match=r"no sglang 0.5.99"):
        wheels.fetch("0.5.99")
    assert left_behind() == []


@pytest.mark.parametrize("word", ["main", "", "0.5.18 --index-url=x", "../0.5.18"])
def test_a_word_that_is_no_version_is_wrong_use(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1)
    with pytest.raises(UsageError, match="is no release of sglang"):
        wheels.fetch(word)


def test_without_a_network_the_cached_releases_are_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cache("0.5.15", "0.5.16")
    reply(monkeypatch, returncode=1, stderr=OFFLINE)
    with pytest.raises(CannotJudge, match=r"cannot be reached: use a cached release \(0.5.15, 0.5.16\)\."):
        wheels.fetch("0.5.18")


def test_without_a_network_and_a_cache_a_checkout_is_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr=OFFLINE)
    with pytest.raises(CannotJudge, match="cannot be reached: no release is cached, so name a checkout"):
        wheels.fetch("0.5.18")


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
