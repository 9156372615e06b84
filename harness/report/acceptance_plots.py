"""Where acceptance differs: by position in the block, by prompt, and what the number of prompts could show."""

from markupsafe import Markup

from harness.parity.acceptance_comparison import Rung
from harness.report.plots import INK, NOISE, ONE, OTHER, plot


def position_plot(rung: Rung) -> Markup:
    """Of the verifies that reached a position, the part that accepted it, for both sides with 95 %."""
    with plot() as drawn:
        for name, side, colour, shift in (
            ("reference", rung.reference, ONE, -0.06),
            ("candidate", rung.candidate, OTHER, 0.06),
        ):
            known = [
                (number + shift, position.hazard, position.hazard - position.low, position.high - position.hazard)
                for number, position in enumerate(side.positions, 1)
                if position.hazard is not None and position.low is not None and position.high is not None
            ]
            if known:
                places, hazards, below, above = zip(*known, strict=True)
                drawn.axes.errorbar(
                    places, hazards, yerr=[below, above], color=colour, marker="o", markersize=4, linewidth=1,
                    elinewidth=1, capsize=2, label=name,
                )  # fmt: skip
        drawn.axes.set_xticks(range(1, len(rung.reference.positions) + 1))
        drawn.axes.set_xlabel("position in the block")
        drawn.axes.set_ylabel("accepted where reached")
        drawn.axes.legend(loc="best", fontsize=8)
        return drawn.svg


def prompt_plot(rung: Rung) -> Markup:
    """Each prompt's acceptance length on both sides: on the line where they are the same."""
    reference, candidate = [one[1] for one in rung.scatter], [one[2] for one in rung.scatter]
    low, high = min(reference + candidate), max(reference + candidate)
    with plot(4.2, 3.6) as drawn:
        drawn.axes.plot([low, high], [low, high], color=NOISE, linewidth=1, linestyle="--")
        drawn.axes.scatter(reference, candidate, s=16, facecolors="none", edgecolors=OTHER)
        drawn.axes.set_aspect("equal", adjustable="datalim")
        drawn.axes.set_xlabel("reference, tokens of a verify")
        drawn.axes.set_ylabel("candidate")
        return drawn.svg


def power_plot(rung: Rung) -> Markup:
    """How often so many prompts find a drop, or show that there is none, at this run's spread."""
    with plot() as drawn:
        drops = sorted({one.drop for one in rung.power})
        for number, drop in enumerate(drops):
            own = [one for one in rung.power if one.drop == drop]
            chances = [one.regressed if drop else one.equivalent for one in own]
            label = f"drop of {drop:.0%} found" if drop else "no drop shown to be none"
            shade = 0.35 + 0.65 * (number + 1) / len(drops)
            colour, style = (OTHER, "-") if drop else (ONE, "--")
            drawn.axes.plot(
                [one.prompts for one in own], chances, color=colour, linestyle=style, alpha=shade, marker="o",
                markersize=3, linewidth=1.2, label=label,
            )  # fmt: skip
        drawn.axes.axvline(rung.prompts, color=INK, linewidth=1)
        drawn.axes.annotate(
            "this run", (rung.prompts, 1), (3, -2), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", fontsize=8,
        )  # fmt: skip
        drawn.axes.set_xscale("log", base=2)
        prompts = sorted({one.prompts for one in rung.power})
        drawn.axes.set_xticks(prompts, [str(number) for number in prompts])
        drawn.axes.set_xlabel("prompts")
        drawn.axes.set_ylabel("chance")
        drawn.axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=8)
        return drawn.svg
