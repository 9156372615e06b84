"""Where the models of sessions lie: for each kind of target a folder, with the target and its drafts by algorithm."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
from harness.cache import cache_dir, new_directory
from harness.models import drafts, targets
from harness.models.weights import Weights, save
from harness.scenario.session import SessionTarget

#: The trained pair, beside the package in a clone.
TRAINED = Path(harness.__file__).parent.parent / "fixtures" / "tiny_pair"
#: The targets that are written from a seed.
RANDOM: dict[SessionTarget, Callable[[], tuple[dict[str, Any], Weights]]] = {
    "multihead": targets.multihead,
    "swa": targets.windowed,
    "mla": targets.latent,
}
_DRAFTS = {"DFLASH": drafts.dflash, "EAGLE": drafts.eagle}


def folder(target: SessionTarget) -> Path:
    """The models of a kind of target; random ones are written to the cache where they are not there yet.

    Raises CannotJudge where the cache cannot be written.
    """
    if target not in RANDOM:
        return TRAINED
    models = cache_dir() / "models" / f"{target}-{_version()}"
    if not models.exists():
        with new_directory(models) as made:
            save(made / "target", *RANDOM[target]())
            for algorithm, draft in _DRAFTS.items():
                save(made / algorithm, *draft())
    return models


def _version() -> str:
    """What changes when the models may have changed: the sources that write them."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
