"""Plots as SVG that lies within the page: its colours are those of the page, light or dark."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.parity.history import Trend

#: Colours that matplotlib is told, and the variables of the style sheet that take their places in the page. None is
#: black: matplotlib leaves that out, since it is what SVG is drawn in without a word.
VARIABLES = {f"#00000{n}": f"var(--{name})" for n, name in enumerate(("ink", "line", "one", "other", "noise"), 1)}
INK, LINE, ONE, OTHER, NOISE = VARIABLES
#: `Any`: the stubs know the keys one by one.
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "harness",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}


class Plot:
    """Axes to draw on, which end as the SVG of `svg`."""

    def __init__(self, axes: Axes, figure: Figure) -> None:
        self.axes = axes
        self._figure = figure

    @property
    def svg(self) -> Markup:
        """The picture, with a title for those who cannot see it."""
        file = io.StringIO()
        self._figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        text = file.getvalue()
        text = text[text.index("<svg") :]
        for colour, variable in VARIABLES.items():
            text = text.replace(colour, variable)
        return Markup(re.sub(r' (width|height)="[^"]*"', "", text, count=2))


@contextmanager
def plot(width: float = 7.5, height: float = 2.8) -> Iterator[Plot]:
    """Axes of `width` by `height` inches."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield Plot(figure.subplots(), figure)


def trend_plot(trend: Trend) -> Markup:
    """A series along its nights: those that failed are hollow, steps are marked, the baseline is a line."""
    with plot() as drawn:
        axes = drawn.axes
        nights = range(len(trend.nights))
        passed = [night.passed for night in trend.nights]
        axes.plot(nights, trend.values, color=ONE, linewidth=1)
        for kept, fill, label in ((True, ONE, "passed"), (False, "none", "failed")):
            chosen = [night for night in nights if passed[night] is kept]
            if chosen:
                values = [trend.values[night] for night in chosen]
                axes.scatter(chosen, values, s=22, facecolors=fill, edgecolors=ONE, zorder=3, label=label)
        for step in trend.steps:
            axes.axvline(step.night - 0.5, color=OTHER, linewidth=1.2)
            axes.annotate(
                f"{step.before:.3g} → {step.after:.3g}",
                (step.night - 0.4, 1),
                (2, -2),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                color=OTHER,
                va="top",
            )
        if trend.baseline is not None:
            axes.axhline(trend.baseline, color=NOISE, linestyle="--", linewidth=1, label="baseline")
        dates = [f"{night.when:%Y-%m-%d}" for night in trend.nights]
        shown = sorted({0, len(dates) // 2, len(dates) - 1})
        axes.set_xticks(shown, [dates[night] for night in shown])
        axes.set_ylabel(trend.name)
        axes.margins(y=0.18)
        axes.legend(loc="best", fontsize=8)
        return drawn.svg
