"""What `harness bisect` refuses in one sentence, and where it finds what to look for."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cache import cache_dir
from harness.commands.bisect import Asked, bisect
from harness.errors import CannotJudge, UsageError
from harness.subject.source import ASCEND_BACKEND
from tests.bisect.history import git
from tests.bisect.test_bisect import CASE, FILE, NEWER, OLDER, harness

FINGERPRINT = "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the harness runs: five releases are cached, the middle one cannot be imported, and there is no network."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "work" / "cache"))
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    texts = {"0.5.15": OLDER, "0.5.16": OLDER, "0.5.17": "merge conflict", "0.5.18": NEWER, "0.5.19": NEWER}
    for release, text in texts.items():
        directory = cache_dir() / "releases" / release
        for name, content in (
            ("sglang/__init__.py", ""),
            (ASCEND_BACKEND, text),
            (f"sglang-{release}.dist-info/METADATA", f"Name: sglang\nVersion: {release}\n"),
            (f"sglang-{release}.dist-info/RECORD", ""),
        ):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(content)
    return tmp_path / "work"


def refused(*, good: str = "0.5.15", bad: str = "0.5.19", repository: Path | None = None) -> str:
    """The sentence with which the question is refused."""
    with pytest.raises(UsageError) as error:
        bisect(Asked(good, bad, repository=repository), CASE, None, [], None, None)
    return str(error.value)


def test_releases_are_searched_and_one_that_cannot_be_judged_makes_a_range(folder: Path) -> None:
    answer = harness(
        "bisect", "--good", "0.5.15", "--bad", "0.5.19", "--fingerprint", FINGERPRINT, "--json", "o.json", folder=folder
    )
    (found,) = json.loads((folder / "o.json").read_text())["answers"]

    assert answer.returncode == 3
    assert found["release"]["before"]["name"] == "0.5.16"
    assert found["release"]["after"]["name"] == "0.5.18"
    assert [one["name"] for one in found["release"]["skipped"]] == ["0.5.17"]
    assert "/compare/v0.5.16...v0.5.18" in answer.stdout


def test_after_the_releases_the_commits_of_a_clone_are_searched_between_their_tags(folder: Path) -> None:
    clone = folder.parent / "clone"
    (clone / FILE).parent.mkdir(parents=True)
    git(clone, "init", "--quiet", "--initial-branch=main")
    (clone / "python" / "sglang" / "__init__.py").touch()
    for number, text in enumerate((OLDER, OLDER + "# more\n", NEWER, NEWER + "# more\n")):
        (clone / FILE).write_text(text)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", f"Change {number} (#{number})")
        git(clone, "tag", f"v0.5.{number + 15}")
    git(clone, "tag", "--delete", "v0.5.17")
    options = ["--good", "0.5.16", "--bad", "0.5.19", "--repo", clone, "--case", CASE]
    answer = harness("bisect", *options, folder=folder)

    assert answer.returncode == 0, answer.stderr
    commit = git(clone, "rev-parse", "--short", "main~1")
    assert f"first wrong: {commit} 2026-07-01 Change 2 (#2)\n" in answer.stdout
    assert "https://github.com/sgl-project/sglang/pull/2\n" in answer.stdout


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"good": "0.5.16", "bad": "0.5.16"}, "both ends are 0.5.16: name two different ones."),
        ({"good": "0.5.19", "bad": "0.5.15"}, "0.5.15 comes before 0.5.19: --good comes first, and with --fixed, "),
        ({"good": "0.5.15", "bad": "nonsense"}, "0.5.15 and nonsense are no two ends of one line: "),
        ({"repository": Path("/nonexistent")}, "/nonexistent is no directory: name a clone of sglang."),
        ({"repository": Path("/")}, "/ cannot be read as a git repository ("),
    ],
    ids=["equal ends", "wrong order", "no revision", "no directory", "no repository"],
)
def test_what_cannot_be_searched_is_refused(folder: Path, options: dict[str, Any], words: str) -> None:
    assert refused(**options).startswith(words)


def test_without_the_network_a_release_that_is_not_cached_cannot_be_judged(folder: Path) -> None:
    with pytest.raises(CannotJudge, match=r"0\.5\.99 is not among the cached releases .*HARNESS_OFFLINE forbids"):
        bisect(Asked("0.5.99", "0.5.19"), CASE, None, [], None, None)


def test_a_clone_that_is_no_sglang_is_refused(folder: Path) -> None:
    clone = folder.parent / "clone"
    clone.mkdir()
    git(clone, "init", "--quiet")
    for _ in range(2):
        git(clone, "commit", "--quiet", "--allow-empty", "--message", "nothing")
    assert " is no sglang: " in refused(good="HEAD~1", bad="HEAD", repository=clone)
    assert " has no tag v0.5.19: fetch the tags" in refused(good="HEAD", bad="0.5.19", repository=clone)


def test_a_fingerprint_without_a_case_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="no case is known for the fingerprint 'nonsense': `harness scan` writes one"):
        bisect(Asked("0.5.15", "0.5.19"), None, "nonsense", [], None, None)


def test_what_to_look_for_is_said_once(folder: Path) -> None:
    with pytest.raises(UsageError, match="--case, --fingerprint and --group say what to look for: name one of them"):
        bisect(Asked("0.5.15", "0.5.19"), CASE, FINGERPRINT, [], None, None)
