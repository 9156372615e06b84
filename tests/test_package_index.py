"""What is made of pip's answers."""

from pathlib import Path

import pytest

from harness.errors import CannotJudge, UsageError
from harness.subject import package_index
from tests.fake_pip import OFFLINE, deliver, list_releases, reply
from tests.fake_wheel import write_wheel

WAY_OUT = "name a checkout"

UNKNOWN_RELEASE = (
    "ERROR: Could not find a version that satisfies the requirement sglang==0.5.99 "
    "(from versions: 0.5.10rc0, 0.5.15, 0.5.15.post1, 0.5.16, 0.5.17)\n"
    "ERROR: No matching distribution found for sglang==0.5.99\n"
)


@pytest.fixture(autouse=True)
def _allowed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_OFFLINE", raising=False)


def test_a_download_neither_installs_nor_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(tmp_path / "index")
    calls = deliver(monkeypatch, wheel)
    (tmp_path / "download").mkdir()
    downloaded = package_index.download("0.5.18", tmp_path / "download", WAY_OUT, lambda message: None)
    assert downloaded == tmp_path / "download" / wheel.name
    assert calls[0][0] == "download"
    assert {"--no-deps", "--only-binary=:all:", "sglang==0.5.18"} <= set(calls[0])


def test_an_unknown_release_is_wrong_use_and_the_nearest_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply(monkeypatch, returncode=1, stderr=UNKNOWN_RELEASE)
    with pytest.raises(UsageError, match=r"no sglang 0.5.99 .*nearest are 0.5.15.post1, 0.5.16, 0.5.17\."):
        package_index.download("0.5.99", tmp_path, WAY_OUT, lambda message: None)


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
def test_without_a_network_no_verdict_is_given_and_a_way_out_is_named(
    stderr: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply(monkeypatch, returncode=1, stderr=stderr)
    with pytest.raises(CannotJudge, match=rf"0.5.18 is not cached, .* cannot be reached: {WAY_OUT}\."):
        package_index.download("0.5.18", tmp_path, WAY_OUT, lambda message: None)


def test_a_full_disk_in_pip_is_told_from_a_missing_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="ERROR: Could not install: [Errno 28] No space left on device\n")
    with pytest.raises(CannotJudge, match="no space left for the download"):
        package_index.download("0.5.18", tmp_path, WAY_OUT, lambda message: None)


def test_any_other_failure_of_pip_is_told_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="/usr/bin/python: No module named pip\n")
    with pytest.raises(CannotJudge, match="No module named pip"):
        package_index.download("0.5.18", tmp_path, WAY_OUT, lambda message: None)
    with pytest.raises(CannotJudge, match="No module named pip"):
        package_index.available_releases()


def test_harness_offline_keeps_pip_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    monkeypatch.setattr(package_index, "_run_pip", lambda *arguments: pytest.fail("pip was run"))
    with pytest.raises(CannotJudge, match=f"HARNESS_OFFLINE forbids a download: {WAY_OUT}"):
        package_index.download("0.5.18", tmp_path, WAY_OUT, lambda message: None)
    with pytest.raises(CannotJudge, match="HARNESS_OFFLINE"):
        package_index.available_releases()


def test_available_releases_are_final_or_post_and_in_the_order_of_versions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    list_releases(monkeypatch, "0.5.15.post1", "0.5.15", "0.5.10", "0.5.10rc0", "0.5.9", "0.6.0.dev1")
    assert package_index.available_releases() == ["0.5.9", "0.5.10", "0.5.15", "0.5.15.post1"]


def test_an_index_that_does_not_answer_has_no_releases_to_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    reply(monkeypatch, returncode=1, stderr="ERROR: No matching distribution found for sglang\n")
    with pytest.raises(CannotJudge, match="it cannot be reached"):
        package_index.available_releases()
