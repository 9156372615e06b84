"""A saved model: its configuration, its weights in float64, and what is done with one weight."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import deserialize

Values = npt.NDArray[np.float64]
#: Types of stored weights, by their names in the file.
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}


class Checkpoint:
    """The model saved in `folder` as config.json and model.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        stored = deserialize((folder / "model.safetensors").read_bytes())  # type: ignore[no-untyped-call]
        self.weights = {name: _weight(**tensor) for name, tensor in stored}
        self.epsilon = float(self.config["rms_norm_eps"])

    def project(self, hidden: Values, name: str) -> Values:
        """`hidden` times the weight `name`."""
        projected: Values = hidden @ self.weights[f"{name}.weight"].T
        return projected

    def norm(self, hidden: Values, name: str) -> Values:
        """`hidden` over the root of its mean square, times the weight `name`."""
        scale = np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + self.epsilon)
        normed: Values = hidden / scale * self.weights[f"{name}.weight"]
        return normed


def _weight(dtype: str, shape: list[int], data: bytes) -> Values:
    """A stored tensor; bfloat16, which NumPy does not have, is the upper half of a float32."""
    if dtype == "BF16":
        numbers = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        numbers = np.frombuffer(data, _TYPES[dtype])
    return numbers.astype(np.float64).reshape(shape)
