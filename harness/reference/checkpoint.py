"""A saved model: its configuration, its weights in float64, and what is done with one weight."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.models.weights import load

Values = npt.NDArray[np.float64]


class Checkpoint:
    """The model saved in `folder` as config.json and model.safetensors."""

    def __init__(self, folder: Path) -> None:
        self.config, weights = load(folder)
        self.weights = {name: weight.astype(np.float64) for name, weight in weights.items()}
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
