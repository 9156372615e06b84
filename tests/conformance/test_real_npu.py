"""The suite as it would run on hardware, with the emulated device standing in: the whole way of `-m npu`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.conformance.cases import CASES

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


def suite(deviations: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "tests.conformance.with_fake_npu", "-p", "no:xdist", "-q"]
    return subprocess.run(
        [*command, "-m", "npu", "cases/conformance"],
        cwd=ROOT,
        env={**os.environ, "DEVIATIONS": deviations},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_device_that_does_as_the_emulation_passes_every_case() -> None:
    done = suite("")

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{len(CASES)} passed" in done.stdout


#: A deviation, a case that shows it, what is said of it, and the rule that it speaks against.
SHOWN = {
    "sees-one-more": (
        "extending behind a prefix",
        r"out\[\d+\] is \S+, off by \S+ where \S+ is noise \(\d+ of \d+ are\), from the \S+ of the emulation",
        "paged_attention.py:[0-9]+: # Assumption: a causal mask of any size stands for causality",
    ),
    "takes-masks": (
        "fused attention: sparse_mode 0",
        r"the device computes it, but the emulation refuses it \(RuntimeError: npu_fused_infer_attention_score: .*",
        "attention_mask.py:[0-9]+: .*TND has no mask where sparse_mode is 0",
    ),
    "refuses-sinks": (
        "sinks in BSND",
        r"the device refuses it \(RuntimeError: the tiling .* alone\), but the emulation computes it",
        "fused_attention.py:[0-9]+: # Assumption: a sink works in every layout",
    ),
    "reads-lists-late": (
        "graph: a list that changes after the update is not read again",
        r"mean\[0\] is 100, off by 96 .* from the 4 of the emulation",
        "graph.py:[0-9]+: # Assumption: the inputs are read when update is called",
    ),
    "recovers": (
        "fault: a page beyond the cache stops the device, and every later call fails",
        "'the same operator, rightly called' is 'no error' instead of the '507015' of the emulation",
        "fault.py:[0-9]+: # Assumption: after a fault every operator fails",
    ),
    "is-lost-by-windows": (
        "a window and a single query",
        r"the device is lost \(DeviceFault: .*507015.*\), but the emulation computes it",
        "attention_mask.py:[0-9]+: # Assumption: the window holds for a single query too",
    ),
    "dies-of-bfloat16": (
        "so it is in bfloat16",
        r"the device gives no answer \(its process ended with status -6.*\), but the emulation computes it",
        "attention_mask.py:[0-9]+: # Assumption: the last query is aligned to the last position",
    ),
    "follows-chains-alone": (
        "a path leads over siblings, and its record is as long as the tree is deep",
        r"predicts\[6\] is 0, off by 22 .* from the 22 of the emulation",
        "draft_tree.py:[0-9]+: # Assumption: where a child is not the wanted token, its siblings are tried",
    ),
}


@pytest.fixture(scope="module")
def report() -> str:
    """What the suite says of a device with every deviation."""
    done = suite(",".join(SHOWN))
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("deviation", SHOWN)
def test_a_deviation_of_the_device_names_the_rule_that_it_speaks_against(deviation: str, report: str) -> None:
    case, said, rule = SHOWN[deviation]

    assert re.search(
        rf"^{re.escape(case)}: on this NPU, {said}\.\nIt contradicts harness/npu/{rule}", report, re.MULTILINE
    )


@pytest.mark.parametrize("case", ["a shorter request of a padded batch leaves zeros", "decoding in BSH"])
def test_what_the_device_does_as_the_emulation_passes_beside_that(case: str, report: str) -> None:
    assert f"[{case}]" not in report
    assert f"\n{case}:" not in report
