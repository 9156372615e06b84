"""A mutation run without a subject: scenes that say nothing are left out, cheap passes come first, and time is up."""

from typing import cast

import pytest

from harness.mutate.judging import UNKNOWN, Baseline, Word
from harness.mutate.mutant import Mutant
from harness.mutate.run import PASSES, Pool, _turns, baseline, fates
from harness.mutate.scenes import Scene
from harness.mutate.targets import TARGETS
from harness.scenario import MetadataScenario
from harness.scenario.metadata import Request

SCENARIO = MetadataScenario("EAGLE", "target_verify", ((Request(5),),), draft_tokens=4)
WRONG, UNJUDGED = Word("kv-lengths", "kv-lengths:x", "x"), Word("block-table", UNKNOWN, "the subject was lost")


def test_a_scene_that_could_not_be_judged_hides_nothing_and_tells_nothing() -> None:
    runs: dict[str, frozenset[int]] = {"a.py": frozenset({7})}
    right = Baseline([frozenset({UNJUDGED}), frozenset({WRONG}), frozenset()], [runs, runs, {}])

    assert right.unjudged == [0]
    assert right.known == {("kv-lengths", "kv-lengths:x")}
    assert right.reaching("a.py", [7]) == [1]


def test_variants_come_after_every_scene_has_been_looked_at_alone() -> None:
    scenes = [Scene("metadata", SCENARIO)] * 50
    turns = list(_turns(range(50), scenes))

    assert [one.variants for one, _ in turns] == sorted(one.variants for one, _ in turns)
    assert [number for one, number in turns if not one.variants] == list(range(50))
    assert sum(one.variants for one, _ in turns) == PASSES[3].most


@pytest.mark.parametrize(("until", "tried"), [(0.0, False), (float("inf"), True)])
def test_no_mutant_is_begun_when_time_is_up(until: float, tried: bool) -> None:
    class AtOnce:
        def each(self, work, count, told):  # type: ignore[no-untyped-def]
            return [work(None, number) for number in range(count)]

    mutant = Mutant(TARGETS[0], "arithmetic", "a + b", "a", "b", range(1, 2), (), "b", "a")
    found = fates(cast(Pool, AtOnce()), [mutant] * 3, [False] * 3, [], Baseline([], []), [], lambda *told: None, until)

    assert [fate is not None for fate in found] == [tried] * 3


def test_a_baseline_that_is_cut_short_is_of_the_first_scenes() -> None:
    class Late:
        def each(self, work, count, told):  # type: ignore[no-untyped-def]
            return [work(None, number) for number in range(count)]

    right = baseline(cast(Pool, Late()), [Scene("metadata", SCENARIO)] * 3, [], [], lambda *told: None, 0.0)

    assert right == Baseline([], [])
