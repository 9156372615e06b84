"""Two acceptance runs side by side: the ladder from exact tokens over replayed steps to the free run."""

import math
from collections.abc import Sequence

import msgspec

from harness.errors import CannotJudge, UsageError
from harness.parity import acceptance_counts as counts
from harness.parity.acceptance_counts import Accepted
from harness.parity.acceptance_exactness import Exactness, exactness
from harness.parity.acceptance_margins import Design, margins, margins_of
from harness.parity.acceptance_run import Header, Run, require_same_setting, require_whole
from harness.parity.acceptance_statistics import (
    Difference,
    contributions,
    curve_p,
    difference,
    drop_p,
    equivalence_p,
    hazard_intervals,
)
from harness.parity.acceptance_verdict import Power, Verdict, power, prompts_to_decide, verdict

SCHEMA = 1
#: Prompts and drops of the power curve.
CURVE_PROMPTS = (16, 32, 64, 128, 256, 512, 1024)
CURVE_DROPS = (0.0, 0.01, 0.02, 0.03, 0.05)


class Position(msgspec.Struct, frozen=True):
    """Of the verifies that reached a draft position, the part that accepted it, with 95 %; None: nothing reached it."""

    hazard: float | None
    low: float | None
    high: float | None


class Side(msgspec.Struct, frozen=True):
    """The estimates of one run: a ratio of sums, the mean per request beside it, and the hazard of each position."""

    length: float
    per_request: float
    verifies: int
    positions: tuple[Position, ...]


class Rung(msgspec.Struct, frozen=True):
    """One statistical comparison. Differences are parts of the reference's length.

    `scatter` has (prompt, reference's length, candidate's length). `decide` is how many prompts would decide if the
    estimate is the truth, None where no number would, and `decide_if_same` how many if nothing has changed.
    """

    design: Design
    prompts: int
    planned: int
    margin: float
    margin_source: str
    reference: Side
    candidate: Side
    difference: Difference
    equivalence_p: float
    drop_p: float
    curve_p: float
    verdict: Verdict
    decide: int | None
    decide_if_same: int | None
    scatter: tuple[tuple[int, float, float], ...]
    power: tuple[Power, ...]


class Comparison(msgspec.Struct, frozen=True, tag="acceptance", tag_field="kind"):
    """All that a report needs; `left_out` says which rungs were not compared, and why."""

    schema: int
    reference: Header
    candidate: Header
    profile: str
    exactness: Exactness
    rungs: tuple[Rung, ...]
    left_out: tuple[str, ...]
    verdict: Verdict

    @property
    def passed(self) -> bool:
        """Whether a history may hold others to this."""
        return self.verdict is Verdict.EQUIVALENT

    @property
    def measured(self) -> dict[str, float]:
        """What a history keeps, by name of the series."""
        algorithm = self.candidate.setting.algorithm
        return {f"{algorithm} acceptance length, {rung.design}": rung.candidate.length for rung in self.rungs}


def compare(reference: Run, candidate: Run, profile: str = "nightly", aa: tuple[Run, Run] | None = None) -> Comparison:
    """Climb the ladder. `aa` are two runs of one system, from which the noise is measured.

    Raises:
        UsageError: runs that cannot be compared, with what differs.
        CannotJudge: a run that is not whole, or that counted no verify.
    """
    for run in (reference, candidate, *(aa or ())):
        require_whole(run)
        require_same_setting(reference.header.setting, reference.path, run.header.setting, run.path)
        if not any(reply.verifies for reply in run.replies.values()):
            raise CannotJudge(f"{run.path} counts no verify: nothing was speculated, or the server told nothing of it.")
    planned = margins_of(profile)
    rungs, left_out = [], []
    for design in planned:
        why = _why_left_out(design, reference, candidate)
        if why:
            left_out.append(f"{design}: {why}")
            continue
        floor = _noise_floor(design, aa)
        margin = max(planned[design].margin, floor)
        source = f"{planned[design].source}, {planned[design].date}"
        if margin > planned[design].margin:
            factor = margins().noise_factor.value
            source = f"{factor:g} times what two runs of one system differ by, at least {planned[design].margin:.0%}"
        rungs.append(_rung(design, reference, candidate, margin, source, planned[design].prompts))
    exact = exactness(reference, candidate, aa)
    verdicts = {exact.verdict, *(rung.verdict for rung in rungs)}
    gravest = next(one for one in Verdict if one in verdicts)
    return Comparison(
        SCHEMA, reference.header, candidate.header, profile, exact, tuple(rungs), tuple(left_out), gravest
    )


def _why_left_out(design: Design, reference: Run, candidate: Run) -> str:
    """Why a rung is not compared, or nothing."""
    if design == "free":
        return ""
    for run in (reference, candidate):
        if not run.steps:
            return f"{run.path} replayed no steps"
    if reference.base_digest != candidate.base_digest:
        raise UsageError(
            f"{reference.path} and {candidate.path} replayed other prefixes: "
            f"run the second with --base {reference.path}."
        )
    if reference.steps.keys() != candidate.steps.keys():
        raise CannotJudge(
            f"{reference.path} replayed {len(reference.steps)} steps and {candidate.path} {len(candidate.steps)}, "
            "not the same ones: the same `harness accept run` goes on where it stopped."
        )
    return ""


def _accepted(design: Design, run: Run, numbers: Sequence[int]) -> Accepted:
    block = run.header.setting.draft_tokens
    if design == "free":
        return counts.of_replies(run.replies, numbers, block)
    return counts.of_steps(run.steps.values(), numbers, block)


def _numbers(design: Design, reference: Run, candidate: Run) -> list[int]:
    """The prompts of a pair: those of which both sides verified something."""
    if design == "replay":
        return sorted({number for number, _ in reference.steps})
    both = reference.replies.keys() & candidate.replies.keys()
    return sorted(n for n in both if reference.replies[n].verifies and candidate.replies[n].verifies)


def _noise_floor(design: Design, aa: tuple[Run, Run] | None) -> float:
    """The margin that two runs of one system ask for; nothing where there are none."""
    if aa is None or _why_left_out(design, *aa):
        return 0.0
    first, second = (_accepted(design, run, _numbers(design, *aa)) for run in aa)
    found = difference(second, first)
    return margins().noise_factor.value * max(abs(found.interval.low), abs(found.interval.high))


def _rung(design: Design, reference: Run, candidate: Run, margin: float, source: str, planned: int) -> Rung:
    numbers = _numbers(design, reference, candidate)
    if not numbers:
        raise CannotJudge(f"of no prompt both {reference.path} and {candidate.path} verified something.")
    theirs, ours = (_accepted(design, run, numbers) for run in (reference, candidate))
    found = difference(ours, theirs)
    least = int(margins().least_prompts.value)
    judged = verdict(found, margin, least)
    lengths = zip(numbers, theirs.lengths.tolist(), ours.lengths.tolist(), strict=True)
    return Rung(
        design,
        len(numbers),
        planned,
        margin,
        source,
        _side(theirs),
        _side(ours),
        found,
        equivalence_p(found, contributions(ours, theirs), margin),
        drop_p(ours, theirs),
        curve_p(ours, theirs),
        judged,
        prompts_to_decide(found, margin, least, found.estimate),
        prompts_to_decide(found, margin, least, 0.0),
        tuple(lengths),
        tuple(power(found.spread, margin, prompts, drop) for drop in CURVE_DROPS for prompts in CURVE_PROMPTS),
    )


def _side(accepted: Accepted) -> Side:
    ends = hazard_intervals(accepted)
    positions = (
        Position(*(float(number) if math.isfinite(number) else None for number in (hazard, *interval)))
        for hazard, interval in zip(accepted.hazards, ends, strict=True)
    )
    return Side(accepted.length, accepted.per_request, int(accepted.verifies.sum()), tuple(positions))
