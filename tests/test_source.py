"""Which sglang a spec names, with made-up packages and repositories and without a network."""

import importlib.machinery
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from harness.cache import cache_dir
from harness.errors import CannotJudge, UsageError
from harness.subject.source import ASCEND_BACKEND, UNKNOWN, Source, resolve

GENERATED_VERSION = "__version__: str\n\n__version__ = version = '0.5.20'\n"
FALLBACK_VERSION = (
    "try:\n    from sglang._version import __version__\nexcept ImportError:\n    __version__ = '0.0.0.dev0'\n"
)


def write_sglang(directory: Path, files: dict[str, str] | None = None, *, metadata: str = "") -> Path:
    """Write a package that fails on import; with `metadata`, the version of a dist-info beside it."""
    contents = {
        "sglang/__init__.py": "raise AssertionError('sglang was imported')\n",
        "sglang/version.py": FALLBACK_VERSION,
        ASCEND_BACKEND: "",
        **(files or {}),
    }
    if metadata:
        contents[f"sglang-{metadata}.dist-info/METADATA"] = f"Name: sglang\nVersion: {metadata}\n\nVersion: no\n"
    for name, content in contents.items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return directory


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.invalid"]
    command = ["git", "-C", str(directory), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def commit(directory: Path) -> str:
    git(directory, "add", "--all")
    git(directory, "commit", "--quiet", "--allow-empty", "--message", "change")
    return git(directory, "rev-parse", "HEAD")


def write_checkout(directory: Path) -> tuple[Path, str]:
    """Write a checkout laid out like sglang's repository, tagged v0.5.18; returns it and its commit."""
    write_sglang(directory / "python")
    git(directory, "init", "--quiet", "--initial-branch=main")
    revision = commit(directory)
    git(directory, "tag", "v0.5.18")
    git(directory, "tag", "gateway-v0.3.1")
    return directory, revision


def cache_release(release: str) -> Path:
    directory = write_sglang(cache_dir() / "releases" / release, metadata=release)
    (directory / f"sglang-{release}.dist-info" / "RECORD").touch()
    return directory


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache, no network, no installed sglang, and an empty working directory outside any repository."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    kept = [
        entry for entry in sys.path if entry and importlib.machinery.PathFinder.find_spec("sglang", [entry]) is None
    ]
    monkeypatch.setattr(sys, "path", kept)


def test_an_installed_sglang_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = write_sglang(tmp_path / "site", metadata="0.5.19")
    monkeypatch.syspath_prepend(site)
    expected = Source(spec="installed", kind="installed", path=str(site), release="0.5.19")
    assert resolve("installed") == expected
    assert resolve(None) == expected
    assert "sglang" not in sys.modules


def test_without_an_installed_sglang_the_newest_cached_release_is_the_default() -> None:
    cache_release("0.5.9")
    newest = cache_release("0.5.18")
    assert resolve(None) == Source(spec="0.5.18", kind="release", path=str(newest), release="0.5.18")


def test_without_an_installed_sglang_and_a_cache_the_specs_are_listed() -> None:
    with pytest.raises(CannotJudge, match="no sglang is installed and no release of it is cached: name"):
        resolve(None)
    with pytest.raises(UsageError, match="no sglang is installed for this Python: install it"):
        resolve("installed")


def test_a_checkout_in_the_working_directory_is_not_an_installed_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_sglang(tmp_path / "work" / "sglang" / "python")
    monkeypatch.syspath_prepend(tmp_path / "work")
    with pytest.raises(UsageError, match="no sglang is installed"):
        resolve("installed")


def test_a_release_is_taken_from_the_cache() -> None:
    path = cache_release("0.5.18")
    assert resolve("0.5.18") == Source(spec="0.5.18", kind="release", path=str(path), release="0.5.18")


def test_a_release_that_cannot_be_fetched_gives_no_verdict() -> None:
    with pytest.raises(CannotJudge, match=r"sglang 0\.5\.18 is not cached"):
        resolve("0.5.18")


def test_a_word_that_is_a_release_and_a_directory_is_the_release(tmp_path: Path) -> None:
    cached = cache_release("0.5.18")
    directory = write_sglang(tmp_path / "work" / "0.5.18")
    assert resolve("0.5.18").path == str(cached)
    assert resolve("./0.5.18").path == str(directory)


def test_a_word_that_is_only_a_directory_is_the_directory(tmp_path: Path) -> None:
    directory = write_sglang(tmp_path / "work" / "mine")
    assert resolve("mine").path == str(directory)
    assert resolve("mine").kind == "directory"


@pytest.mark.parametrize("spec", ["main", "", "release-0.5"])
def test_a_word_that_names_nothing_is_wrong_use_and_the_specs_are_listed(spec: str) -> None:
    with pytest.raises(UsageError, match="names no sglang: name `installed`, a release"):
        resolve(spec)


@pytest.mark.parametrize("spec", ["./missing", "missing/python", "~/missing-sglang"])
def test_a_path_that_is_no_directory_is_wrong_use(spec: str) -> None:
    with pytest.raises(UsageError, match=f"{spec} is no directory"):
        resolve(spec)


def test_a_checkout_and_its_python_directory_are_the_same_sglang(tmp_path: Path) -> None:
    checkout, revision = write_checkout(tmp_path / "checkout")
    whole, part = resolve(str(checkout)), resolve(str(checkout / "python"))
    assert whole.path == part.path == str(checkout / "python")
    assert whole.release == part.release == "0.5.18"
    assert whole.revision == part.revision == revision


def test_a_directory_that_is_no_sglang_is_told_from_one_without_the_ascend_backend(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"work is no sglang: sglang/__init__\.py is missing"):
        resolve(".")
    write_sglang(tmp_path / "old")
    (tmp_path / "old" / ASCEND_BACKEND).unlink()
    with pytest.raises(UsageError, match=f"old is an sglang that has no Ascend backend: {ASCEND_BACKEND} is missing"):
        resolve(str(tmp_path / "old"))


def test_an_installed_sglang_without_the_ascend_backend_is_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = write_sglang(tmp_path / "site", metadata="0.4.0")
    (site / ASCEND_BACKEND).unlink()
    monkeypatch.syspath_prepend(site)
    with pytest.raises(UsageError, match=r"the installed sglang, .*site, is an sglang that has no Ascend backend"):
        resolve(None)


def test_the_release_of_a_directory_is_read_from_its_version_file(tmp_path: Path) -> None:
    write_sglang(tmp_path / "generated", {"sglang/_version.py": GENERATED_VERSION})
    write_sglang(tmp_path / "plain", {"sglang/version.py": '__version__ = "0.5.3"\n'})
    assert resolve(str(tmp_path / "generated")).release == "0.5.20"
    assert resolve(str(tmp_path / "plain")).release == "0.5.3"


def test_the_metadata_beside_a_package_is_believed_before_its_version_file(tmp_path: Path) -> None:
    write_sglang(tmp_path / "both", {"sglang/_version.py": GENERATED_VERSION}, metadata="0.5.21")
    assert resolve(str(tmp_path / "both")).release == "0.5.21"


def test_a_fallback_version_is_not_taken_for_the_release(tmp_path: Path) -> None:
    assert resolve(str(write_sglang(tmp_path / "bare"))).release == UNKNOWN


def test_a_checkout_is_dated_by_its_tags_and_not_by_the_version_file_of_an_old_build(tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    (checkout / ".gitignore").write_text("_version.py\n")
    (checkout / "python/sglang/_version.py").write_text("__version__ = '0.5.1'\n")
    assert resolve(str(checkout)).release == "0.5.18"


def test_a_commit_after_a_tag_has_a_valid_release_that_tells_the_distance(tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    commit(checkout)
    revision = commit(checkout)
    found = resolve(str(checkout))
    assert found.release.startswith("0.5.18+2.g")
    assert revision.startswith(found.release.removeprefix("0.5.18+2.g"))
    assert Version("0.5.18") < Version(found.release) < Version("0.5.19")


def test_a_checkout_without_tags_has_an_unknown_release_but_a_revision(tmp_path: Path) -> None:
    checkout, revision = write_checkout(tmp_path / "checkout")
    git(checkout, "tag", "--delete", "v0.5.18")
    assert resolve(str(checkout)).release == UNKNOWN
    assert resolve(str(checkout)).revision == revision


def test_a_package_in_the_checkout_of_something_else_has_no_revision(tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    found = resolve(str(write_sglang(checkout / "environment", metadata="0.5.19")))
    assert found.release == "0.5.19"
    assert found.revision == ""


@pytest.mark.parametrize("subdirectory", ["", "python"])
def test_a_revision_is_unpacked_as_it_was_committed(subdirectory: str, tmp_path: Path) -> None:
    checkout, revision = write_checkout(tmp_path / "checkout")
    (checkout / "python/sglang/version.py").write_text("# changed later\n")
    commit(checkout)
    (checkout / "python/sglang/version.py").write_text("# not committed\n")
    before = git(checkout, "status", "--porcelain")
    said: list[str] = []
    spec = f"git:{checkout / subdirectory}@v0.5.18"
    found = resolve(spec, said.append)
    target = cache_dir() / "revisions" / revision
    assert found == Source(spec=spec, kind="git", path=str(target), release="0.5.18", revision=revision)
    assert (target / "sglang/version.py").read_text() == FALLBACK_VERSION
    assert [entry.name for entry in target.parent.iterdir()] == [revision]
    assert git(checkout, "status", "--porcelain") == before
    assert said == [f"Unpacking sglang at {revision[:12]}"]
    assert resolve(spec, said.append) == found
    assert len(said) == 1


def test_a_revision_of_a_bare_repository_can_be_named(tmp_path: Path) -> None:
    checkout, revision = write_checkout(tmp_path / "checkout")
    git(tmp_path, "clone", "--quiet", "--bare", str(checkout), "bare.git")
    assert resolve(f"git:{tmp_path / 'bare.git'}@main").revision == revision


def test_a_repository_made_from_a_release_has_the_package_at_its_top(tmp_path: Path) -> None:
    write_sglang(tmp_path / "flat", {"sglang/_version.py": GENERATED_VERSION})
    git(tmp_path / "flat", "init", "--quiet")
    revision = commit(tmp_path / "flat")
    found = resolve(f"git:{tmp_path / 'flat'}@HEAD")
    assert found.revision == revision
    assert found.release == "0.5.20"


def test_a_directory_and_a_revision_may_both_hold_an_at_sign(tmp_path: Path) -> None:
    checkout, revision = write_checkout(tmp_path / "a@b")
    (tmp_path / "a").mkdir()
    commit(checkout)
    assert resolve(f"git:{checkout}@main@{{1}}").revision == revision


def test_a_link_that_leads_out_of_the_package_is_left_out(tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    (checkout / "python/sglang/outside").symlink_to("../../../../../outside")
    (checkout / "python/sglang/inside").symlink_to("version.py")
    commit(checkout)
    found = Path(resolve(f"git:{checkout}@HEAD").path)
    assert not (found / "sglang/outside").is_symlink()
    assert (found / "sglang/inside").read_text() == FALLBACK_VERSION


@pytest.mark.parametrize("name", ["no-such-branch", "--all", "main:python", "0" * 40])
def test_a_revision_that_does_not_exist_is_wrong_use(name: str, tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    with pytest.raises(UsageError, match=f"has no revision '{name}'"):
        resolve(f"git:{checkout}@{name}")


def test_a_directory_that_is_no_repository_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"work cannot be read as a git repository \(not a git repository"):
        resolve(f"git:{tmp_path / 'work'}@HEAD")


@pytest.mark.parametrize("spec", ["git:", "git:.", "git:@HEAD", "git:.@", "git:missing@HEAD"])
def test_a_git_spec_without_a_directory_or_a_revision_is_wrong_use(spec: str) -> None:
    with pytest.raises(UsageError, match="write `git:DIR@REV`"):
        resolve(spec)


def test_a_revision_without_the_ascend_backend_leaves_nothing_behind(tmp_path: Path) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    (checkout / "python" / ASCEND_BACKEND).unlink()
    commit(checkout)
    with pytest.raises(UsageError, match="@HEAD is an sglang that has no Ascend backend"):
        resolve(f"git:{checkout}@HEAD")
    assert list((tmp_path / "cache" / "revisions").iterdir()) == []


def test_a_revision_of_something_else_is_wrong_use(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    commit(other)
    with pytest.raises(UsageError, match="@HEAD is no sglang: the revision has neither"):
        resolve(f"git:{other}@HEAD")


def test_a_git_hook_does_not_redirect_the_harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, revision = write_checkout(tmp_path / "checkout")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert resolve(str(checkout)).revision == revision


def test_without_git_a_directory_has_no_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, _ = write_checkout(tmp_path / "checkout")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert resolve(str(checkout)).revision == ""
    with pytest.raises(UsageError, match="git is not installed"):
        resolve(f"git:{checkout}@HEAD")
