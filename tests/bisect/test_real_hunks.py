"""The search on the real subject: two releases' `ascend_backend.py`, hunk by hunk, in a clone of 60 commits."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.subject.source import ASCEND_BACKEND, resolve
from tests.bisect.history import everything_of, git, sixty_commits
from tests.bisect.test_bisect import CASE, FILE

#: The change of 0.5.18 by which the eager path adds the block for every verify but DSpark's.
CULPRIT = "self.forward_metadata.seq_lens_cpu_int += spec_tokens_per_req"


@pytest.mark.nightly
@pytest.mark.parametrize("broken", [0, 3])
def test_the_hunk_of_0_5_18_that_counts_the_block_twice_is_found_among_sixty_commits(
    tmp_path: Path, broken: int
) -> None:
    older, newer = (Path(resolve(release).path) for release in ("0.5.17", "0.5.18"))
    clone = tmp_path / "clone"
    shutil.copytree(older / "sglang", clone / "python" / "sglang", ignore=shutil.ignore_patterns("__pycache__"))
    git(clone, "init", "--quiet", "--initial-branch=main")
    git(clone, "add", "--all")
    texts = [(folder / ASCEND_BACKEND).read_text() for folder in (older, newer)]
    first, guilty = sixty_commits(clone, FILE, texts[0], texts[1], CULPRIT, broken)
    (clone / FILE).write_text("not committed")
    before = everything_of(clone)
    options = ["--repo", clone, "--good", first, "--bad", "main", "--case", CASE, "--json", "out.json"]
    answer = subprocess.run(
        [sys.executable, "-m", "harness", "bisect", *map(str, options)], cwd=tmp_path, capture_output=True, text=True
    )
    (found,) = json.loads((tmp_path / "out.json").read_text())["answers"]

    assert found["commit"]["after"]["spec"] == f"git:{clone}@{guilty}", answer.stderr
    assert found["commit"]["judged"] <= 8
    assert any(CULPRIT in line for line in found["hunks"][0]["lines"])
    assert everything_of(clone) == before
