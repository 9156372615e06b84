"""How far outputs are from float64, summed up over any number of rounds in a few numbers."""

import numpy as np
import numpy.typing as npt

from harness.parity.document import Errors


class ErrorSum:
    """Takes outputs one round after the other; what it keeps does not grow."""

    def __init__(self) -> None:
        self.values = 0
        self.squares = self.relative = 0.0
        self.largest = self.largest_relative = 0.0
        self.close = 0

    def add(self, output: npt.NDArray[np.float32], exact: npt.NDArray[np.float64]) -> float:
        """Take one round, and return its largest error; one that is no number is infinitely wrong."""
        errors = np.abs(output - exact)
        errors[np.isnan(errors)] = np.inf
        if not errors.size:
            return 0.0
        relative = errors / np.maximum(np.abs(exact), np.finfo(np.float32).tiny)
        largest = float(errors.max())
        self.values += errors.size
        self.squares += float(np.square(errors).sum())
        self.relative += float(relative.sum())
        self.largest = max(self.largest, largest)
        self.largest_relative = max(self.largest_relative, float(relative.max()))
        self.close += int((errors <= np.spacing(np.abs(exact).astype(np.float32))).sum())
        return largest

    def errors(self, bound: float | None) -> Errors:
        """What was taken so far."""
        count = max(self.values, 1)
        return Errors(
            values=self.values,
            rms=(self.squares / count) ** 0.5,
            largest=self.largest,
            largest_relative=self.largest_relative,
            mean_relative=self.relative / count,
            within_one_ulp=self.close / count,
            bound=bound,
        )


def ratio(a: Errors, b: Errors) -> dict[str, float]:
    """Each error of `b` over that of `a`; an error of 0 over one of 0 is 1."""
    names = ("rms", "largest", "largest_relative", "mean_relative")
    return {name: _over(getattr(b, name), getattr(a, name)) for name in names}


def _over(numerator: float, denominator: float) -> float:
    if denominator:
        return numerator / denominator
    return np.inf if numerator else 1.0
