"""Where two sides differ: their errors by the length of the KV cache, beside the noise floor."""

from markupsafe import Markup

from harness.parity.document import ComparisonDocument
from harness.report.plots import INK, NOISE, ONE, OTHER, plot

#: Where an error of nothing is drawn on an axis of powers of ten, as a part of the smallest that is none.
NOTHING = 0.3


def error_plot(document: ComparisonDocument) -> Markup:
    """The largest error of each scenario on both sides, those that differ ringed, and what noise may amount to."""
    measured = [(one.kv_length, one.largest, one.verdict) for one in document.scenarios if one.largest is not None]
    smallest = min((error for _, both, _ in measured for error in both if error), default=1.0)
    with plot(height=3.2) as drawn:
        axes = drawn.axes
        for side, (name, colour, marker) in enumerate((("a", ONE, "o"), ("b", OTHER, "x"))):
            lengths = [max(length, 1) for length, _, _ in measured]
            errors = [both[side] or NOTHING * smallest for _, both, _ in measured]
            axes.scatter(lengths, errors, s=18, color=colour, marker=marker, linewidth=1, alpha=0.8, label=name)
        different = [(max(length, 1), max(both)) for length, both, verdict in measured if verdict == "DIFFERENT"]
        if different:
            longest, largest = zip(*different, strict=True)
            axes.scatter(longest, largest, s=80, facecolors="none", edgecolors=INK, label="different")
        for name, style, errors_of in zip("ab", ("--", ":"), document.errors or (), strict=False):
            if errors_of.bound:
                axes.axhline(errors_of.bound, color=NOISE, linestyle=style, label=f"noise of {name}")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:.0f}")
        axes.set_yscale("log")
        axes.set_xlabel("longest KV length of the scenario")
        axes.set_ylabel("largest error against float64")
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        return drawn.svg
