"""A small mutation run on the real source: it fails where a check has gone blind.

Each mutant was drawn once, and is killed by the same check on the same scenario every time.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.checks.check import Check
from harness.checks.finding import PASSED
from harness.checks.registry import checks_of
from harness.mutate.mutant import Mutant, mutants
from harness.mutate.run import Fate, Pool, baseline, fates
from harness.mutate.scenes import Scene
from harness.mutate.targets import TARGETS
from harness.scenario.pinned import pinned_cases
from harness.subject.source import resolve

RELEASE = "0.5.23"
#: Scenarios, by the layer that they belong to; each is asked of sglang as it is, and of every mutant that it runs.
SCENES = tuple(
    Scene("metadata", pinned_cases()[name].scenario)
    for name in (
        "double-count-of-the-contract",
        "eagle-verify-eager-up-to-the-context-end",
        "eagle-verify-fewer-than-the-bucket-after-a-full-one",
        "eagle3-draft-step-2-counts-the-steps-before-it",
        "decode-graph-of-24-counts-25",
        "window-mask-swa_mask-DFLASH-graph-target_verify-draft-hidden",
    )
)
COUNT = "self.forward_metadata.seq_lens_cpu_int += self.speculative_step_id + 1"
#: Function, operator, first line of the statement, and what the place becomes: each with the check that has to see it.
EXPECTED = {
    ("init_forward_metadata", "dropped-condition", "if (", "(spec_algorithm is None)"): "kv-lengths",
    ("init_forward_metadata", "dropped-refresh", COUNT, "pass"): "kv-lengths",
    ("init_forward_metadata", "arithmetic", COUNT, COUNT.replace("+=", "-=")): "kv-lengths",
    ("_apply_cuda_graph_metadata", "dropped-copy", "metadata.seq_lens[:bs].copy_(seq_lens[:bs])", "pass"): "kv-lengths",
    ("_init_cuda_graph_metadata", "off-by-one", "metadata.actual_seq_lengths_q = torch.tensor(", "(2)"): (
        "query-lengths"
    ),
    (
        "_apply_cuda_graph_metadata",
        "host-device",
        "seq_lens_int = seq_lens_cpu[:bs].int().to(self.device)",
        "seq_lens",
    ): ("window-mask"),
}
Key = tuple[str, str, str, str]


def chosen(sglang: Path) -> dict[Key, Mutant]:
    """The mutants of `EXPECTED`."""
    found: dict[Key, Mutant] = {}
    for target in TARGETS:
        if target.group == "metadata":
            for mutant in mutants(sglang, target):
                for key in EXPECTED:
                    function, operator, line, after = key
                    place = (target.function.split(".")[-1], mutant.operator, mutant.after)
                    if place == (function, operator, after) and mutant.line.startswith(line):
                        found.setdefault(key, mutant)
    return found


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(resolve(RELEASE), 1) as started:
        yield started


def run(pool: Pool, checks: list[Check]) -> dict[Key, Fate]:
    selected = chosen(Path(resolve(RELEASE).path))
    assert set(selected) == set(EXPECTED)
    files = sorted({mutant.target.file for mutant in selected.values()})
    right = baseline(pool, SCENES, checks, files, lambda *told: None)
    assert not any(word.unknown for words in right.words for word in words)
    every = list(selected.values())
    found = fates(pool, every, [False] * len(every), SCENES, right, checks, lambda *told: None)
    return {key: fate for key, fate in zip(selected, found, strict=True) if fate is not None}


def test_every_mutant_is_killed_and_its_check_sees_it(pool: Pool) -> None:
    found = run(pool, checks_of(("metadata",)))

    for key, check in EXPECTED.items():
        assert found[key].status == "killed", (key, found[key])
        assert check in found[key].checks, (key, found[key])


def test_a_check_that_has_gone_blind_lets_its_mutant_live(pool: Pool) -> None:
    blind = [
        check._replace(judge=lambda *given: PASSED) for check in checks_of(("metadata",)) if check.id == "kv-lengths"
    ]
    alive = {key for key, fate in run(pool, blind).items() if fate.status == "survived"}

    assert alive == set(EXPECTED)
