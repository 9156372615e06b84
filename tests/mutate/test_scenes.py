"""What mutants are put to: every scene is one that can be run."""

from harness.mutate.scenes import Draw, drawn
from harness.scenario.validity import why_invalid


def test_every_scene_that_is_drawn_is_valid() -> None:
    scenes = list(drawn(("DFLASH", "DSPARK", "EAGLE"), Draw(1, 1)))

    assert {scene.layer for scene in scenes} == {"guard", "metadata", "attention"}
    assert not [why for scene in scenes if (why := why_invalid(scene.scenario))]
