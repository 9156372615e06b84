"""What mutants are put to: every scene is one that can be run."""

from harness.checks.registry import CHECKS
from harness.mutate.run import PASSES
from harness.mutate.scenes import LAYERS, Draw, _each_apart, _each_by_its_seed, asked, drawn, played
from harness.scenario import MetadataScenario
from harness.scenario.attention import SIZES, attention_scenarios
from harness.scenario.strategies import cells, scenarios
from harness.scenario.validity import why_invalid


def test_every_scene_that_is_drawn_is_valid() -> None:
    scenes = list(drawn(("DFLASH", "DSPARK", "EAGLE"), Draw(1, 1)))

    assert {scene.layer for scene in scenes} == {"guard", "metadata", "attention"}
    assert not [why for scene in scenes if (why := why_invalid(scene.scenario))]


def test_every_session_that_is_played_is_valid_and_all_fit_into_one_pass() -> None:
    scenes = list(played(("DFLASH", "EAGLE")))

    assert [why for scene in scenes if (why := why_invalid(scene.scenario))] == []
    assert len(scenes) == next(one.most for one in PASSES if one.layer == "sessions")
    assert {scene.layer for scene in scenes} == {"sessions"}


def test_every_check_is_asked_about_the_scenes_of_one_layer() -> None:
    layers = {check.id: [layer for layer in LAYERS if check in asked(layer, [check])] for check in CHECKS.values()}

    assert [check for check, found in layers.items() if len(found) != 1] == []


def test_cells_draw_by_seeds_of_their_own() -> None:
    strategies = [scenarios(cell) for cell in cells(("EAGLE",)) if cell.mode == "target_verify"][:2]
    first, second = _each_by_its_seed(strategies, 4, 0)

    assert [one.rounds for one in first] != [one.rounds for one in second]  # type: ignore[union-attr]


def test_what_selects_the_operators_of_attention_is_drawn_in_every_combination() -> None:
    cell = next(cell for cell in cells(()) if (cell.mode, cell.target) == ("extend", "mha"))
    strategy = attention_scenarios(cell, ("head-sizes", "dp-padding"))
    (drawn_apart,) = _each_apart([strategy], 40, 0)
    attention = [one.attention for one in drawn_apart if isinstance(one, MetadataScenario)]

    found = {(one.fia, one.head_size, one.value_size) for one in attention if one is not None}
    assert found == {(fia, *sizes) for fia in (False, True) for sizes in SIZES}
    assert {one.padding > 0 for one in attention if one is not None and one.fia} == {False, True}
