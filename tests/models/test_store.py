"""Random models are written where a cache is, the same ones everywhere, and anew when their sources change."""

from pathlib import Path
from typing import get_args

import pytest

from harness.models import store
from harness.models.store import RANDOM, TRAINED, draft, folder
from harness.models.weights import load
from harness.scenario.session import SessionTarget


@pytest.fixture
def other_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    return tmp_path


def _files(models: Path) -> dict[str, bytes]:
    return {str(file.relative_to(models)): file.read_bytes() for file in sorted(models.rglob("*")) if file.is_file()}


def test_every_target_is_the_trained_pair_or_random() -> None:
    assert {target: folder(target) == TRAINED for target in get_args(SessionTarget)} == {
        target: target not in RANDOM for target in get_args(SessionTarget)
    }


@pytest.mark.parametrize("target", RANDOM)
def test_a_random_model_is_written_once_with_its_drafts(target: SessionTarget, other_cache: Path) -> None:
    models = folder(target)
    (models / "target" / "mark").touch()

    assert models.is_relative_to(other_cache)
    assert folder(target) == models
    assert (models / "target" / "mark").exists()
    assert {path.name for path in models.iterdir()} == {"target", *store.DRAFTS}


@pytest.mark.parametrize("name", ["DSPARK", "DFLASH2"])
def test_a_draft_grown_from_the_trained_one_has_all_its_weights(name: str, other_cache: Path) -> None:
    settings, grown = load(draft("mha", name))
    _, trained = load(TRAINED / "DFLASH")

    assert settings["architectures"] != ["DFlashDraftModel"]
    assert trained.keys() < grown.keys()
    assert all((grown[weight] == trained[weight]).all() for weight in trained)


def test_a_trained_draft_is_that_of_the_pair(other_cache: Path) -> None:
    assert draft("mha", "DFLASH") == TRAINED / "DFLASH"


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    for name in ("first", "second"):
        monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / name))
        written.append(_files(folder("mla")))

    assert written[0] == written[1]


def test_other_sources_write_another_folder(other_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folder("multihead")
    changed = other_cache / "sources"
    changed.mkdir()
    (changed / "targets.py").write_text("LAYERS = 5")
    monkeypatch.setattr(store, "__file__", str(changed / "store.py"))

    assert folder("multihead") != before
