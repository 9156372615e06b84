"""Two acceptance runs side by side: the ladder from exact tokens over replayed steps to the free run."""

import math
from collections.abc import Sequence

import msgspec

from harness.errors import CannotJudge, UsageError
from harness.parity import acceptance_counts as counts
from harness.parity.acceptance_counts import Accepted
from harness.parity.acceptance_exactness import Exactness, exactness
from harness.parity.acceptance_looks import first_look, second_look
from harness.parity.acceptance_margins import Design, margins, margins_of
from harness.parity.acceptance_pooling import pooled
from harness.parity.acceptance_positions import Shift, free_shifts, replayed_shifts
from harness.parity.acceptance_run import Header, Run, require_same_setting, require_whole
from harness.parity.acceptance_statistics import (
    ONE_LOOK,
    Difference,
    Levels,
    change_p,
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
#: Of the prompts of two looks, the part that the first one is at.
HALF = 0.5


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

    `change_p` is the p-value by which a family of comparisons is corrected; `shifts` has a test for each position.
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
    change_p: float
    shifts: tuple[Shift, ...]
    verdict: Verdict
    decide: int | None
    decide_if_same: int | None
    scatter: tuple[tuple[int, float, float], ...]
    power: tuple[Power, ...]


class Comparison(msgspec.Struct, frozen=True, tag="acceptance", tag_field="kind"):
    """All that a report needs; `left_out` says which rungs were not compared, and why.

    `look` is 1 or 2 where two looks were declared, and 0 where there is only one.
    """

    schema: int
    reference: Header
    candidate: Header
    profile: str
    exactness: Exactness
    rungs: tuple[Rung, ...]
    left_out: tuple[str, ...]
    verdict: Verdict
    look: int = 0

    @property
    def passed(self) -> bool:
        """Whether a history may hold others to this."""
        return self.verdict is Verdict.EQUIVALENT

    @property
    def measured(self) -> dict[str, float]:
        """What a history keeps, by name of the series."""
        algorithm = self.candidate.setting.algorithm
        return {f"{algorithm} acceptance length, {rung.design}": rung.candidate.length for rung in self.rungs}


def compare(
    reference: Run,
    candidate: Run,
    profile: str = "nightly",
    aa: tuple[Run, Run] | None = None,
    two_looks: bool = False,
    more: tuple[Run, Run] | None = None,
) -> Comparison:
    """Climb the ladder. `aa` are two runs of one system, from which the noise is measured.

    With `two_looks` this is the first of two; with `more`, runs of both on fresh prompts, it is the second.

    Raises:
        UsageError: runs that cannot be compared, with what differs.
        CannotJudge: a run that is not whole, or that counted no verify.
    """
    for run in (reference, candidate, *(aa or ())):
        _require_comparable(reference, run)
    planned = margins_of(profile)
    levels = first_look(HALF) if two_looks else ONE_LOOK
    if more is not None:
        if not two_looks:
            raise UsageError("more runs are for the second of two looks, which were to be declared with the first.")
        _require_comparable(more[0], more[1])
        counts = reference.header.setting.count, more[0].header.setting.count
        if counts[0] != counts[1]:
            raise UsageError(
                f"the first look was at {counts[0]} prompts, and the second would add {counts[1]}: record as many "
                f"fresh ones (`harness accept run --skip {counts[0]} --count {counts[0]}`)."
            )
        reference, candidate = pooled(reference, more[0]), pooled(candidate, more[1])
        levels = second_look(HALF)
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
        rungs.append(_rung(design, reference, candidate, margin, source, planned[design].prompts, levels))
    exact = exactness(reference, candidate, aa)
    return Comparison(
        SCHEMA,
        reference.header,
        candidate.header,
        profile,
        exact,
        tuple(rungs),
        tuple(left_out),
        gravest(exact, rungs),
        0 if not two_looks else 1 if more is None else 2,
    )


def gravest(exact: Exactness, rungs: Sequence[Rung]) -> Verdict:
    """The gravest verdict of all rungs."""
    verdicts = {exact.verdict, *(rung.verdict for rung in rungs)}
    return next(one for one in Verdict if one in verdicts)


def _require_comparable(reference: Run, run: Run) -> None:
    require_whole(run)
    require_same_setting(reference.header.setting, reference.path, run.header.setting, run.path)
    if not any(reply.verifies for reply in run.replies.values()):
        raise CannotJudge(f"{run.path} counts no verify: nothing was speculated, or the server told nothing of it.")


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


def _rung(
    design: Design, reference: Run, candidate: Run, margin: float, source: str, planned: int, levels: Levels
) -> Rung:
    numbers = _numbers(design, reference, candidate)
    if not numbers:
        raise CannotJudge(f"of no prompt both {reference.path} and {candidate.path} verified something.")
    theirs, ours = (_accepted(design, run, numbers) for run in (reference, candidate))
    found = difference(ours, theirs, levels=levels)
    contributed = contributions(ours, theirs)
    least, allowance = int(margins().least_prompts.value), margins().allowance.value
    judged = verdict(found, margin, allowance, least)
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
        equivalence_p(found, contributed, margin),
        drop_p(ours, theirs),
        curve_p(ours, theirs),
        change_p(found, contributed, allowance),
        _shifts(design, reference, candidate, ours, theirs),
        judged,
        prompts_to_decide(found, margin, allowance, least, found.estimate),
        prompts_to_decide(found, margin, allowance, least, 0.0),
        tuple(lengths),
        tuple(
            power(found.spread, margin, allowance, prompts, drop) for drop in CURVE_DROPS for prompts in CURVE_PROMPTS
        ),
    )


def _shifts(design: Design, reference: Run, candidate: Run, ours: Accepted, theirs: Accepted) -> tuple[Shift, ...]:
    if design == "replay":
        return replayed_shifts(reference.steps, candidate.steps, reference.header.setting.draft_tokens)
    return free_shifts(ours, theirs)


def _side(accepted: Accepted) -> Side:
    ends = hazard_intervals(accepted)
    positions = (
        Position(*(float(number) if math.isfinite(number) else None for number in (hazard, *interval)))
        for hazard, interval in zip(accepted.hazards, ends, strict=True)
    )
    return Side(accepted.length, accepted.per_request, int(accepted.verifies.sum()), tuple(positions))
