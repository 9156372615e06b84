"""`harness bisect` and `git bisect run harness verdict`, the whole way, on made-up clones and subjects."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.subject.source import ASCEND_BACKEND
from tests.bisect import marked_subject
from tests.bisect.history import everything_of, git, sixty_commits

CASE = Path(__file__).parents[2] / "cases" / "regressions" / "double-count-of-the-contract.json"
FILE = f"python/{ASCEND_BACKEND}"
PARTS = [f"def part{number}(value):\n    value = value + {{}}\n    return value\n\n\n" for number in range(12)]
LENGTH = "def host_length(prefix, block):\n    return prefix + block{}\n\n\n"
OLDER = "".join([*(part.format(0) for part in PARTS[:7]), LENGTH.format(""), *(part.format(0) for part in PARTS[7:])])
NEWER = "".join(
    [*(part.format(1) for part in PARTS[:7]), LENGTH.format(" + block"), *(part.format(1) for part in PARTS[7:])]
)
CULPRIT = "prefix + block + block"


def harness(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m harness` in `folder`, with the made-up subject."""
    return subprocess.run(command(*arguments), cwd=folder, env=environment(folder), capture_output=True, text=True)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "harness", *map(str, arguments), "--through", marked_subject.COMMAND]


def environment(folder: Path) -> dict[str, str]:
    """A cache of its own, and no network."""
    return os.environ | {"HARNESS_CACHE": str(folder / "cache"), "HARNESS_OFFLINE": "1", "COLUMNS": "300"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the harness runs; the clone is beside it."""
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """An empty repository."""
    (tmp_path / "clone" / "python" / "sglang").mkdir(parents=True)
    git(tmp_path / "clone", "init", "--quiet", "--initial-branch=main")
    (tmp_path / "clone" / "python" / "sglang" / "__init__.py").touch()
    git(tmp_path / "clone", "add", "--all")
    return tmp_path / "clone"


def ends(clone: Path, first: str, last: str = "main") -> list[str | Path]:
    """The options that name both ends, and the case."""
    return ["--repo", clone, "--good", first, "--bad", last, "--case", CASE]


def judged(answer: subprocess.CompletedProcess[str]) -> list[str]:
    """The abbreviated commits that were judged, in order."""
    return re.findall(r"^  ([0-9a-f]{7,}) .*: (?:good|bad|unknown)\.", answer.stderr, re.MULTILINE)


@pytest.mark.parametrize("broken", [0, 3])
def test_the_commit_of_sixty_is_found_in_eight_judgements_and_a_dirty_checkout_is_left_alone(
    clone: Path, folder: Path, broken: int
) -> None:
    first, guilty = sixty_commits(clone, FILE, OLDER, NEWER, CULPRIT, broken)
    (clone / FILE).write_text("not committed")
    (clone / "staged.txt").write_text("staged")
    git(clone, "add", "staged.txt")
    (clone / "untracked.txt").write_text("untracked")
    before = everything_of(clone)
    answer = harness("bisect", *ends(clone, first), "--json", "out.json", "--markdown", "out.md", folder=folder)
    (found,) = json.loads((folder / "out.json").read_text())["answers"]

    assert answer.returncode == 0, answer.stderr
    assert found["commit"]["after"]["spec"] == f"git:{clone}@{guilty}"
    assert f"first wrong: {guilty[:7]} 2026-07-01 Change " in answer.stdout
    assert "+    return prefix + block + block" in found["hunks"][0]["lines"]
    assert found["commit"]["judged"] == len(judged(answer)) - 2 <= 8
    assert everything_of(clone) == before
    assert f"--sglang git:{clone}@{guilty}" in (folder / "out.md").read_text()


def test_a_run_that_is_killed_goes_on_where_it_was(clone: Path, folder: Path) -> None:
    first, guilty = sixty_commits(clone, FILE, OLDER, NEWER, CULPRIT, 3)
    arguments = command("bisect", *ends(clone, first))
    running = subprocess.Popen(arguments, cwd=folder, env=environment(folder), stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    told = ""
    for line in running.stderr:
        told += line
        if told.count(". ") >= 4:
            break
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stderr.close()
    earlier = judged(subprocess.CompletedProcess(arguments, 0, "", told))
    answer = harness("bisect", *ends(clone, first), folder=folder)

    assert f"first wrong: {guilty[:7]} " in answer.stdout
    assert len(earlier) >= 3
    assert not set(earlier) & set(judged(answer))
    assert len(earlier) + len(judged(answer)) <= 8 + 2


def test_git_bisect_run_finds_the_commit_by_verdicts(clone: Path, folder: Path) -> None:
    first, guilty = sixty_commits(clone, FILE, OLDER, NEWER, CULPRIT, 3)
    git(clone, "bisect", "start", "main", first)
    run = ["git", "-C", str(clone), "bisect", "run", *command("verdict", CASE, "--sglang", clone)]
    ran = subprocess.run(run, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr
    assert f"{guilty} is the first bad commit" in ran.stdout


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        (OLDER, 0, "good: sglang unknown: seq_lens_cpu_int=[21, 146]\n"),
        (NEWER, 1, "bad: sglang unknown: seq_lens_cpu_int[0]=37, but should be 21 [eager, DFLASH, "),
        ("this is a merge conflict\n", 125, "unknown: sglang unknown: sglang unknown"),
        (None, 125, "is an sglang that has no Ascend backend"),
    ],
    ids=["good", "bad", "broken", "none"],
)
def test_a_verdict_is_a_status_of_git_bisect(
    clone: Path, folder: Path, text: str | None, status: int, words: str
) -> None:
    if text is not None:
        (clone / FILE).parent.mkdir(parents=True)
        (clone / FILE).write_text(text)
    given = harness("verdict", CASE, "--sglang", clone, folder=folder)

    assert given.returncode == status
    assert words in given.stdout


def commits(clone: Path, *texts: str) -> list[str]:
    """Commit one version of the file after the other."""
    (clone / FILE).parent.mkdir(parents=True, exist_ok=True)
    made = []
    for text in texts:
        (clone / FILE).write_text(text)
        git(clone, "add", "--all")
        git(clone, "commit", "--quiet", "--message", "Change")
        made.append(git(clone, "rev-parse", "HEAD"))
    return made


def test_a_finding_that_shows_sometimes_is_decided_by_a_sequential_test(clone: Path, folder: Path) -> None:
    sometimes = "SHARE = 0.4\n"
    texts = [sometimes + text for text in (OLDER, OLDER + "\n", NEWER, NEWER + "\n", NEWER + "\n\n")]
    first, _, guilty, *_ = commits(clone, *texts)
    answer = harness("bisect", *ends(clone, first), "--json", "out.json", folder=folder)
    (found,) = json.loads((folder / "out.json").read_text())["answers"]

    assert f"first wrong: {guilty[:7]} " in answer.stdout
    assert "by a sequential test: bad where at least" in answer.stdout
    assert 0.1 < found["rates"]["bad"] < 0.4
    assert found["commit"]["at_before"]["runs"] > 5
    assert 0 < found["error"] <= 0.05


def test_where_nothing_between_can_be_judged_the_answer_is_a_range(clone: Path, folder: Path) -> None:
    made = commits(clone, OLDER, "merge conflict", "merge conflict\n", NEWER)
    answer = harness("bisect", *ends(clone, made[0]), folder=folder)

    assert answer.returncode == 3
    names = ", ".join(f"{commit[:7]} 2026-07-01 Change" for commit in made[1:])
    assert f"first wrong: one of {names}; all but the last could not be judged" in answer.stdout


def test_what_fixed_it_is_found_with_fixed(clone: Path, folder: Path) -> None:
    first, fixing, _ = commits(clone, NEWER, OLDER, OLDER + "\n")
    wrong_way = harness("bisect", *ends(clone, first), folder=folder)
    options = ["--fixed", "--repo", clone, "--bad", first, "--good", "main", "--case", CASE]
    answer = harness("bisect", *options, folder=folder)

    assert wrong_way.returncode == 2
    assert "harness: the ends are the wrong way round: " in wrong_way.stderr
    assert f"`harness bisect --fixed --good git:{clone}@" in wrong_way.stderr
    assert f"first right: {fixing[:7]} " in answer.stdout


def test_ends_that_are_alike_are_refused_in_one_sentence(clone: Path, folder: Path) -> None:
    first, _ = commits(clone, OLDER, OLDER + "\n")
    answer = harness("bisect", *ends(clone, first), folder=folder)

    assert answer.returncode == 2
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("harness: the finding shows neither in ")
    assert last.endswith("there is nothing to search.")


def test_a_folder_that_cannot_be_written_to_stops_git_bisect_instead_of_skipping(clone: Path, folder: Path) -> None:
    (clone / FILE).parent.mkdir(parents=True)
    (clone / FILE).write_text(OLDER)
    (folder / ".harness").write_text("a file is in the way")
    given = harness("verdict", CASE, "--sglang", clone, folder=folder)

    assert given.returncode == 128
    assert "cannot note in .harness/pending what the subject is asked" in given.stderr
