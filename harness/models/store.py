"""Where the models of sessions lie: for each kind of target a folder, with the target and its drafts by algorithm."""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import harness
from harness.cache import cache_dir, new_directory
from harness.models import drafts, targets
from harness.models.weights import Weights, load, save
from harness.scenario.session import SessionTarget

Made = tuple[dict[str, Any], Weights]
Model = Callable[[], Made]
#: The trained pair, beside the package in a clone.
TRAINED = Path(harness.__file__).parent.parent / "fixtures" / "tiny_pair"
#: The targets that are written from a seed.
RANDOM: dict[SessionTarget, Model] = {
    "multihead": targets.multihead,
    "swa": targets.windowed,
    "mla": targets.latent,
}
#: Drafts by algorithm, or by the name of the draft model where an algorithm has several.
DRAFTS: dict[str, Model] = {
    "DFLASH": drafts.dflash,
    "EAGLE": drafts.eagle,
    "DSPARK": lambda: drafts.dspark(*drafts.dflash()),
    "DFLASH2": lambda: drafts.dflash2(*drafts.dflash()),
}
#: Drafts of the trained target that are its trained DFlash draft with a random part more.
_GROWN: dict[str, Callable[[dict[str, Any], Weights], Made]] = {
    "DSPARK": drafts.dspark,
    "DFLASH2": drafts.dflash2,
}


def folder(target: SessionTarget) -> Path:
    """The models of a kind of target; random ones are written to the cache where they are not there yet.

    Raises CannotJudge where the cache cannot be written.
    """
    if target not in RANDOM:
        return TRAINED
    return _made(target, {"target": RANDOM[target]} | DRAFTS)


def draft(target: SessionTarget, name: str) -> Path:
    """The draft of a kind of target by its name in `DRAFTS`, written as by `folder`."""
    if target in RANDOM or name not in _GROWN:
        return folder(target) / name
    trained = TRAINED / "DFLASH"
    grown: dict[str, Model] = {other: partial(_grow, make, trained) for other, make in _GROWN.items()}
    return _made(target, grown, trained) / name


def _grow(make: Callable[[dict[str, Any], Weights], Made], read: Path) -> Made:
    return make(*load(read))


def _made(name: str, models: dict[str, Model], *read: Path) -> Path:
    """The folder with `models`, which are made of this package and of the folders that they `read`."""
    place = cache_dir() / "models" / f"{name}-{_version(*read)}"
    if not place.exists():
        with new_directory(place) as made:
            for model, make in models.items():
                save(made / model, *make())
    return place


def _version(*read: Path) -> str:
    """What changes when the models may have changed: the sources that write them, and what those read."""
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *(file for path in read for file in sorted(path.iterdir()))]
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
