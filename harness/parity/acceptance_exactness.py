"""Whether answers are the target's own: no statistics, but near-ties, whose width is measured.

Three comparisons, each at the same prefix on both sides: the two runs' answers up to the first token that differs; each
run's answer and the target's choices along it; and the target's choices of both runs along the same answer.
"""

from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from harness.errors import UsageError
from harness.parity.acceptance_margins import margins
from harness.parity.acceptance_run import Run, Scored, System
from harness.parity.acceptance_verdict import Verdict

#: Of what is wrong, so many are told one by one.
TOLD = 5
#: In the place of a token: there is none any more.
END = -1


class Bound(msgspec.Struct, frozen=True):
    """The gap in nats of the two best tokens below which either is right, and where that is from."""

    value: float
    source: str


class Mismatch(msgspec.Struct, frozen=True):
    """Two tokens at the same place of the same text, or one and the end. `gap` is None where nobody has scored it."""

    comparison: str
    number: int
    place: int
    token: int
    expected: int
    gap: float | None

    def __str__(self) -> str:
        lead = "nobody scored it" if self.gap is None else f"it leads by {self.gap:.3g} nats"
        return (
            f"{self.comparison}: token {self.place} of prompt {self.number} is {_named(self.token)}, "
            f"but should be {_named(self.expected)} ({lead})"
        )


def _named(token: int) -> str:
    return "missing" if token == END else str(token)


class Exactness(msgspec.Struct, frozen=True):
    """How many tokens were compared, and what became of those that differ. `told` are the first that are wrong."""

    compared: int
    near_ties: int
    wrong: int
    unjudged: int
    bound: Bound | None
    told: tuple[Mismatch, ...]
    verdict: Verdict


def exactness(reference: Run, candidate: Run, aa: tuple[Run, Run] | None) -> Exactness:
    """Judge all three comparisons; which of them can be made depends on what was scored."""
    bound = near_tie(reference.header.system, candidate.header.system, aa)
    compared = 0
    mismatches: list[Mismatch] = []
    for one in _comparisons(reference, candidate):
        compared += 1
        if one is not None:
            mismatches.append(one)
    judged = [one for one in mismatches if bound is not None and one.gap is not None]
    wrong = [one for one in judged if bound is not None and one.gap is not None and one.gap > bound.value]
    unjudged = len(mismatches) - len(judged)
    if wrong:
        verdict = Verdict.NOT_LOSSLESS
    else:
        verdict = Verdict.INCONCLUSIVE if unjudged or not compared else Verdict.EQUIVALENT
    near_ties = len(judged) - len(wrong)
    told = tuple((wrong or [one for one in mismatches if one not in judged])[:TOLD])
    return Exactness(compared, near_ties, len(wrong), unjudged, bound, told, verdict)


def near_tie(reference: System, candidate: System, aa: tuple[Run, Run] | None) -> Bound | None:
    """How near two tokens are that numerics may exchange: as two runs of one system show, else as was measured before.

    None where neither is there: then a token that differs is not judged. Raises UsageError for two runs that were not
    scored along the same answers.
    """
    if aa is not None and (noise := _noise(*aa)) is not None:
        factor = margins().noise_factor.value
        return Bound(
            factor * noise, f"{factor:g} times the largest difference of gaps between {aa[0].path} and {aa[1].path}"
        )
    known = [margins().near_tie.get(f"{system.device}/{system.dtype}") for system in (reference, candidate)]
    numbers = [one for one in known if one is not None]
    if len(numbers) < len(known):
        return None
    widest = max(numbers, key=lambda number: number.value)
    return Bound(widest.value, f"{widest.source}, {widest.date}")


def _noise(first: Run, second: Run) -> float | None:
    """The largest difference of a gap, of which one is negative where the choices differ; None without any score."""
    if first.texts and second.texts and first.base_digest != second.base_digest:
        raise UsageError(
            f"{first.path} and {second.path} were scored along other answers, so their gaps are no noise: run the "
            f"second with --base {first.path}."
        )
    differences = [
        abs(mine - theirs) if choice == other else mine + theirs
        for number, one in first.texts.items()
        if number in second.texts
        for choice, mine, other, theirs in _places(one, second.texts[number])
    ]
    return max(differences, default=None)


def _places(one: Scored, other: Scored) -> Iterator[tuple[int, float, int, float]]:
    return zip(one.choices, one.gaps, other.choices, other.gaps, strict=False)


def _comparisons(reference: Run, candidate: Run) -> Iterator[Mismatch | None]:
    """For every token that is compared, how it differs, or None."""
    for number, reply in candidate.replies.items():
        yield from _answers(number, reply.tokens, reference.replies[number].tokens, reference.own.get(number))
    for side, run in (("reference", reference), ("candidate", candidate)):
        for number, own in run.own.items():
            places = zip(run.replies[number].tokens, own.choices, own.gaps, strict=False)
            for place, (token, choice, gap) in enumerate(places):
                yield None if token == choice else Mismatch(f"{side}'s own", number, place, token, choice, gap)
    if candidate.header.base:
        for number, forced in candidate.base.items():
            if number in reference.texts:
                for place, (choice, _, expected, gap) in enumerate(_places(forced, reference.texts[number])):
                    differs = Mismatch("forced", number, place, choice, expected, gap)
                    yield None if choice == expected else differs


def _answers(
    number: int, tokens: tuple[int, ...], expected: tuple[int, ...], scored: Scored | None
) -> Iterator[Mismatch | None]:
    """Up to the first token that differs: after it the prefixes are not the same."""
    for place, (token, right) in enumerate(zip_longest(tokens, expected, fillvalue=END)):
        if token != right:
            gap = scored.gaps[place] if scored is not None and place < len(scored.gaps) else None
            yield Mismatch("answers", number, place, token, right, gap)
            return
        yield None
