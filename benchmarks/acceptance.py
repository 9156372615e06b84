"""How often the verdict of acceptance parity is right: `python -m benchmarks.acceptance [--nights N]`.

Nights are simulated with the structure that was published for DFlash on Qwen3-8B: a mean of 6.35 tokens a verify at a
block of 16, 327 tokens and 51.5 verifies a prompt (sglang#31739), prompts that differ by 17 to 21 % with the noise of
their steps (xLLM#2279 has 12 % over 128 prompts), 45 of 100 prompts of a free run that go another way without any
fault (vLLM#35204 has 8 to 24), and numerics in which the two sides differ at one position in a thousand. The prompt is
the unit. Where both sides have such numerics they cost neither anything; where only the candidate has them, they cost
it a third of a percent, which the last row of each plan shows: that is no regression either. A plan of two looks takes
the second half of its prompts only where the first is INCONCLUSIVE.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np
import scipy
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from harness.parity.acceptance_counts import Accepted, Counts
from harness.parity.acceptance_looks import first_look, second_look
from harness.parity.acceptance_margins import Design, margins, margins_of
from harness.parity.acceptance_statistics import ONE_LOOK, Levels, difference
from harness.parity.acceptance_verdict import Verdict, verdict

BLOCK = 16
TOKENS = 327
#: More verifies than 327 tokens ever take at these hazards.
MOST_STEPS = 160
#: The logit of the mean hazard, and its spread over prompts; calibrated to 6.35 and 17 to 21 %.
LOGIT, PROMPT_SPREAD = 1.82, 0.28
DIVERGING = 0.45
FLIPS = 0.001
#: Bounds of 99 % from so many resamples; a real comparison takes 9999.
RESAMPLES = 1999


class Truth(NamedTuple):
    """What has happened, and what follows for the candidate.

    Its hazards as a part of the reference's, by design (a free run with the same hazards differs by less than replayed
    steps do), and whether it alone has numerics that flip positions. `kept` tells of the nights that were REGRESSED,
    and of all nights, whether they are as few or as many as the gate promises.
    """

    name: str
    kept: Callable[[int, int], bool]
    replay: float = 1.0
    free: float = 1.0
    one_sided: bool = False

    def factor(self, design: Design) -> float:
        """The factor of the hazards in such a night."""
        return self.replay if design == "replay" else self.free


def at_most_one_in_a_hundred(regressed: int, nights: int) -> bool:
    """Whether nobody can tell from so many nights that it is more than one in a hundred."""
    return bool(scipy.stats.binomtest(regressed, nights, 0.01, alternative="greater").pvalue > 0.05)


TRUTHS = NO_CHANGE, TWO_PERCENT, FIVE_PERCENT, NUMERICS = (
    Truth("no change", lambda regressed, nights: regressed <= 0.01 * nights),
    Truth("a drop of 2 %", lambda regressed, nights: regressed >= 0.90 * nights, replay=0.9955, free=0.9953),
    Truth("a drop of 5 %", lambda regressed, nights: regressed == nights, replay=0.9885, free=0.9885),
    Truth("numerics of one side", at_most_one_in_a_hundred, one_sided=True),
)

Uniform = NDArray[np.float32]
Hits = NDArray[np.bool_]


class Night(NamedTuple):
    """The two sides of one comparison."""

    candidate: Accepted
    reference: Accepted


def replay_night(rng: np.random.Generator, prompts: int, truth: Truth) -> Night:
    """The reference's steps, and the same steps on a candidate with hazards of its own."""
    hazard, drawn = _prompts(rng, prompts), _draws(rng, prompts)
    candidate, reference = _sides(rng, truth, drawn < truth.factor("replay") * hazard, drawn < hazard)
    taken = _taken(reference)
    return Night(_accepted(candidate, taken), _accepted(reference, taken))


def free_night(rng: np.random.Generator, prompts: int, truth: Truth) -> Night:
    """Two free runs that are the same until a prompt goes another way, and from there on independent."""
    hazard, drawn = _prompts(rng, prompts), _draws(rng, prompts)
    leaves = np.where(rng.random(prompts) < DIVERGING, rng.integers(0, TOKENS // 6, prompts), MOST_STEPS)
    elsewhere = np.arange(MOST_STEPS) >= leaves[:, None]
    own = np.where(elsewhere[:, :, None], _draws(rng, prompts), drawn)
    candidate, reference = _sides(rng, truth, own < truth.factor("free") * hazard, drawn < hazard)
    return Night(_accepted(candidate, _taken(candidate)), _accepted(reference, _taken(reference)))


NIGHTS: dict[Design, Callable[[np.random.Generator, int, Truth], Night]] = {"replay": replay_night, "free": free_night}


def _prompts(rng: np.random.Generator, prompts: int) -> Uniform:
    """The hazard of each prompt, (prompts, 1, 1)."""
    logit = LOGIT + PROMPT_SPREAD * rng.standard_normal((prompts, 1, 1))
    return (1 / (1 + np.exp(-logit))).astype(np.float32)


def _draws(rng: np.random.Generator, prompts: int) -> Uniform:
    return rng.random((prompts, MOST_STEPS, BLOCK - 1), dtype=np.float32)


def _sides(rng: np.random.Generator, truth: Truth, candidate: Hits, reference: Hits) -> tuple[Counts, Counts]:
    """Drafts accepted by each step of both sides, whose numerics turn some hits into misses and the other way."""
    shares = (FLIPS, 0.0) if truth.one_sided else (FLIPS / 2, FLIPS / 2)
    for hits, share in zip((candidate, reference), shares, strict=True):
        hits.reshape(-1)[rng.integers(0, hits.size, rng.binomial(hits.size, share))] ^= True
    return _correct(candidate), _correct(reference)


def _correct(hits: Hits) -> Counts:
    """Drafts accepted by each step, (prompts, steps)."""
    missed = np.concatenate([~hits, np.ones((*hits.shape[:2], 1), bool)], axis=-1)
    return missed.argmax(axis=-1)


def _taken(correct: Counts) -> Hits:
    """Which steps it takes to reach the end of the answer, (prompts, steps)."""
    before = np.cumsum(correct + 1, axis=1) - (correct + 1)
    return before < TOKENS


def _accepted(correct: Counts, taken: Hits) -> Accepted:
    rows = np.arange(len(correct))[:, None] * BLOCK + correct
    counted = np.bincount(rows[taken], minlength=len(correct) * BLOCK)
    return Accepted(counted.reshape(len(correct), BLOCK))


class Plan(NamedTuple):
    """A design, its prompts at the nightly margin, and whether there are two looks, the first at half of them."""

    design: Design
    prompts: int
    two_looks: bool = False


def plans() -> list[Plan]:
    """What a nightly run may be: one look, or two where that saves prompts."""
    replay, free = (margins_of("nightly")[design].prompts for design in ("replay", "free"))
    return [Plan("replay", replay), Plan("free", free), Plan("free", free, two_looks=True)]


class Decided(NamedTuple):
    """What a night came to, after so many prompts."""

    verdict: Verdict
    prompts: int


def decided(plan: Plan, rng: np.random.Generator, truth: Truth) -> Decided:
    """One night."""
    make = NIGHTS[plan.design]
    if not plan.two_looks:
        return Decided(_judged(plan.design, make(rng, plan.prompts, truth), ONE_LOOK), plan.prompts)
    half = plan.prompts // 2
    first = make(rng, half, truth)
    found = _judged(plan.design, first, first_look(half / plan.prompts))
    if found is not Verdict.INCONCLUSIVE:
        return Decided(found, half)
    second = make(rng, plan.prompts - half, truth)
    both = Night(
        *(Accepted(np.concatenate([one.histograms, two.histograms])) for one, two in zip(first, second, strict=True))
    )
    return Decided(_judged(plan.design, both, second_look(half / plan.prompts)), plan.prompts)


def _judged(design: Design, night: Night, levels: Levels) -> Verdict:
    known = margins()
    found = difference(*night, RESAMPLES, levels)
    margin = margins_of("nightly")[design].margin
    return verdict(found, margin, known.allowance.value, int(known.least_prompts.value))


def rates(plan: Plan, truth: Truth, nights: int, seed: int = 0) -> list[Decided]:
    """What so many nights come to."""
    return [decided(plan, rng, truth) for rng in np.random.default_rng(seed).spawn(nights)]


def part(found: Sequence[Decided], verdict: Verdict) -> float:
    """In which part of the nights that was the verdict."""
    return sum(one.verdict is verdict for one in found) / len(found)


def true_difference(design: Design, truth: Truth) -> float:
    """The difference that a very long night has."""
    candidate, reference = NIGHTS[design](np.random.default_rng(1), 8192, truth)
    return candidate.length / reference.length - 1


def main(
    nights: Annotated[int, typer.Option(help="Nights of each row.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the nights.")] = 0,
) -> None:
    """Print the verdict rates; status 1 where they are not those that the gate promises."""
    verdicts = (Verdict.EQUIVALENT, Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE)
    table = Table("design", "prompts", "truth", "true difference", *(one.value for one in verdicts), "promised")
    all_kept = True
    for plan, truth in product(plans(), TRUTHS):
        found = rates(plan, truth, nights, seed)
        kept = truth.kept(sum(one.verdict is Verdict.REGRESSED for one in found), nights)
        all_kept &= kept
        prompts = f"{np.mean([one.prompts for one in found]):.0f}{f' of {plan.prompts}' if plan.two_looks else ''}"
        cells = (f"{part(found, one):.3f}" for one in verdicts)
        name = f"{plan.design}, two looks" if plan.two_looks else plan.design
        shown = f"{true_difference(plan.design, truth):+.2%}"
        table.add_row(name, prompts, truth.name, shown, *cells, "kept" if kept else "BROKEN")
    Console(width=140).print(table)
    raise typer.Exit(0 if all_kept else 1)


if __name__ == "__main__":
    typer.run(main)
