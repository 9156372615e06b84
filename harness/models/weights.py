"""Weights, random or read, and the files that a model is loaded from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import deserialize
from safetensors.numpy import save_file

Weights = dict[str, npt.NDArray[np.float32]]
#: Types of stored weights, by their names in the file.
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


class Draws:
    """Weights drawn one after the other from one seed."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape: int, spread: float) -> npt.NDArray[np.float32]:
        """Weights around 0 with the standard deviation `spread`."""
        drawn: npt.NDArray[np.float32] = self._generator.standard_normal(shape, dtype=np.float32) * np.float32(spread)
        return drawn


def ones(size: int) -> npt.NDArray[np.float32]:
    """The weight of a norm that only normalises."""
    return np.ones(size, dtype=np.float32)


def save(folder: Path, settings: Mapping[str, Any], weights: Weights) -> None:
    """Write `settings` as config.json, and `weights` as model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings, indent=1))
    # Slices and transposed views would be written in the order of their memory.
    whole = {name: np.ascontiguousarray(weight) for name, weight in weights.items()}
    save_file(whole, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder: Path) -> tuple[dict[str, Any], Weights]:
    """The settings of a saved model, and its weights in the types in which they are stored."""
    stored = deserialize((folder / "model.safetensors").read_bytes())  # type: ignore[no-untyped-call]
    return json.loads((folder / "config.json").read_text()), {name: _weight(**tensor) for name, tensor in stored}


def _weight(dtype: str, shape: list[int], data: bytes) -> npt.NDArray[np.float32]:
    """A stored tensor; bfloat16, which NumPy does not have, is the upper half of a float32."""
    if dtype == "BF16":
        numbers = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        numbers = np.frombuffer(data, _TYPES[dtype])
    return numbers.reshape(shape)
