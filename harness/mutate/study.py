"""A study: the mutants of some targets, what became of each, and the score."""

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

from harness.checks.check import Check
from harness.checks.registry import checks_without
from harness.mutate.arguments import Arguments
from harness.mutate.faults import DOUBLE_COUNT, Caught, Detection, KnownFault, caught, double_count, known_faults
from harness.mutate.mutant import Mutant, mutants, sampled
from harness.mutate.run import Fate, Pool, Progress, Status, baseline, fates
from harness.mutate.scenes import Draw, Scene, drawn, played, swept
from harness.mutate.targets import Target
from harness.scenario.pinned import known_in, pinned_cases
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

#: Scenes that drive a mutant: drawn as a check draws them, with sessions after them, or swept.
By = Literal["drawn", "swept"]
#: Seeds by which it is asked how soon the double count is caught.
SEEDS = 21
ARMS: tuple[By, ...] = ("drawn", "swept")


class Verdict(msgspec.Struct, frozen=True):
    """One mutant and its fates, one for each arm.

    `argument` says why it was not: it is `equivalent`, stands where no scenario gets to, or slips through for a reason
    that is known. `diff` is there where it was not killed.
    """

    target: str
    group: str
    operator: str
    place: int
    line: str
    change: str
    fates: dict[By, Fate]
    argument: str = ""
    equivalent: bool = False
    diff: str = ""

    @property
    def status(self) -> Status:
        """Of all arms together: killed by one of them, else what the first one says."""
        every = [fate.status for fate in self.fates.values()]
        return next((status for status in ("killed", "masked", "survived") if status in every), "unreached")

    @property
    def unexplained(self) -> bool:
        """Whether nothing killed it, and nothing says why."""
        return self.status != "killed" and not self.argument


class Score(msgspec.Struct, frozen=True):
    """Counts of mutants. The rate is of those that some scenario runs and that are not argued to be equivalent."""

    made: int
    killed: int
    equivalent: int
    unreached: int

    @property
    def rate(self) -> float | None:
        """Killed per mutant that could be, or None where there is none."""
        could = self.made - self.equivalent - self.unreached
        return self.killed / could if could else None


class Study(msgspec.Struct, frozen=True):
    """`known` is what is said of the sglang without a mutant; `scenes` counts scenarios by layer.

    `new` is the part of `known` that no pinned case of the release has, and `unjudged` counts scenarios that no mutant
    was put to, as some check could not judge them. `checks` are those that were asked: not those `without`, which were
    switched off. `faults` are those of the catalogue; `detections` say when the double count was caught. `untried` and
    `faults_untried` count what `minutes` left no time for.
    """

    release: str
    seed: int
    limit: int | None
    scenes: dict[str, int]
    known: list[str]
    new: list[str]
    unjudged: int
    untried: int
    checks: list[str]
    seconds: float
    subjects: int
    verdicts: list[Verdict]
    faults: list[Caught] = []
    detections: list[Detection] = []
    minutes: float | None = None
    faults_untried: int = 0
    without: list[str] = []

    @property
    def unexplained(self) -> list[Verdict]:
        """Those that nothing killed and nothing explains."""
        return [verdict for verdict in self.verdicts if verdict.unexplained]

    @property
    def refuted(self) -> list[Verdict]:
        """Those that are argued to be equivalent, and were killed all the same."""
        return [verdict for verdict in self.verdicts if verdict.equivalent and verdict.status == "killed"]


def score(verdicts: Collection[Verdict], by: By | None = None) -> Score:
    """The score, of all arms or of one."""

    def status(verdict: Verdict) -> Status:
        if by is None:
            return verdict.status
        return verdict.fates[by].status if by in verdict.fates else "unreached"

    counted = [(verdict.equivalent, status(verdict)) for verdict in verdicts]
    return Score(
        len(counted),
        sum(found == "killed" and not equivalent for equivalent, found in counted),
        sum(equivalent for equivalent, _ in counted),
        sum(found == "unreached" and not equivalent for equivalent, found in counted),
    )


def typical(verdicts: Iterable[Verdict], by: By) -> tuple[float, float] | None:
    """Median scenarios and seconds until the arm has killed, of those that it kills."""
    killing = [verdict.fates[by] for verdict in verdicts if by in verdict.fates]
    killing = [fate for fate in killing if fate.status == "killed"]
    if not killing:
        return None
    return median(fate.scenarios for fate in killing), median(fate.seconds for fate in killing)


#: Of the time that there is, the part that the sglang without a mutant may take.
BASELINE_SHARE = 0.5


def study(
    source: Source,
    targets: Sequence[Target],
    argued: Arguments,
    limit: int | None,
    seed: int,
    draw: Draw,
    arms: Sequence[By] = ("drawn",),
    with_faults: bool = False,
    without: Sequence[str] = (),
    minutes: float | None = None,
    progress: Progress = lambda stage, done, total: None,
    note: Callable[[str], None] = lambda text: None,
) -> Study:
    """Run the mutants of `targets`, at most `limit` of them, and say what became of each.

    It takes `minutes`, its start included: what is left then counts as `untried`. Raises UsageError where one of
    `without`, the checks that are switched off, is none.
    """
    asking = checks_without(without)
    start = time.monotonic()
    until = start + 60 * (math.inf if minutes is None else minutes)
    every = [mutant for target in targets for mutant in mutants(Path(source.path), target)]
    argued.require_fresh(source.release, every)
    chosen = sampled(every, limit, seed)
    note(f"sglang {source.release}: {len(chosen)} of {len(every)} mutants of {len(targets)} functions")
    found: dict[By, list[Fate | None]] = {}
    counts: dict[str, int] = {}
    known: set[str] = set()
    unjudged = 0
    with Pool(source) as pool:
        capabilities = pool.info.capabilities
        checks = [check for check in asking if not check.needs or check.needs in capabilities]
        faults = _faults(pool, checks, progress, until) if with_faults else _Faults([], [], 0)
        few = [argued.equivalence(mutant) is not None for mutant in chosen]
        for left, arm in zip(range(len(arms), 0, -1), arms, strict=True):
            if not chosen:
                break
            scenes = list(drawn(capabilities, draw) if arm == "drawn" else swept(capabilities))
            if arm == "drawn" and any(target.needs_sessions for target in targets):
                scenes += played(capabilities)
            now = time.monotonic()
            share = (until - now) / left
            files = sorted({target.file for target in targets})
            right = baseline(pool, scenes, checks, files, progress, now + BASELINE_SHARE * share)
            if len(right.words) < len(scenes):
                note(f"{arm}: there was time for {len(right.words)} of {len(scenes)} scenarios")
            scenes = scenes[: len(right.words)]
            known |= {fingerprint for _, fingerprint in right.known}
            unjudged += len(right.unjudged)
            found[arm] = fates(pool, chosen, few, scenes, right, checks, progress, now + share)
            counts |= _counted(scenes)
    tried = [
        (mutant, {arm: fate for arm in found if (fate := found[arm][number]) is not None})
        for number, mutant in enumerate(chosen)
    ]
    verdicts = [_verdict(mutant, fates, argued) for mutant, fates in tried if len(fates) == len(arms)]
    return Study(
        source.release,
        seed,
        limit,
        counts,
        sorted(known),
        sorted(known - known_in({source.release}, pinned_cases())),
        unjudged,
        len(chosen) - len(verdicts),
        [check.id for check in checks],
        time.monotonic() - start,
        pool.size,
        verdicts,
        faults.caught,
        faults.detections,
        minutes,
        faults.untried,
        list(without),
    )


class _Faults(NamedTuple):
    caught: list[Caught]
    detections: list[Detection]
    untried: int


def _faults(pool: Pool, checks: Sequence[Check], progress: Progress, until: float) -> _Faults:
    """Every fault of the catalogue, then the double count by several seeds, as far as there is time."""
    known = known_faults()
    if pool.release != known.release:
        return _Faults([], [], 0)
    metadata = [check for check in checks if check.group == "metadata"]
    asked_for = {check.id for check in checks}
    twice = [fault for fault in known.faults if fault.name == DOUBLE_COUNT and fault.check in asked_for]

    by_case: dict[str, list[KnownFault]] = {}
    for fault in known.faults:
        by_case.setdefault(fault.case, []).append(fault)
    cases = list(by_case.items())

    def one(supervisor: Supervisor, number: int) -> list[Caught]:
        return [] if time.monotonic() > until else caught(supervisor, *cases[number], checks)

    def again(supervisor: Supervisor, number: int) -> Detection | None:
        return None if time.monotonic() > until else double_count(supervisor, twice[0], metadata, number)

    every = pool.each(one, len(cases), lambda done: progress("cases with faults of the catalogue", done, len(cases)))
    found = {one.name: one for some in every for one in some}
    seeds = SEEDS * len(twice)
    seen = pool.each(again, seeds, lambda done: progress("the double count", done, seeds))
    in_order = [found[fault.name] for fault in known.faults if fault.name in found]
    return _Faults(in_order, [one for one in seen if one], len(known.faults) - len(in_order))


def _counted(scenes: Sequence[Scene]) -> dict[str, int]:
    layers = [scene.layer for scene in scenes]
    return {layer: layers.count(layer) for layer in dict.fromkeys(layers)}


def _verdict(mutant: Mutant, fates: dict[By, Fate], argued: Arguments) -> Verdict:
    equivalence, outside = argued.equivalence(mutant), argued.outside(mutant)
    unreached = all(fate.status == "unreached" for fate in fates.values())
    killed = any(fate.status == "killed" for fate in fates.values())
    survival = None if killed or unreached else argued.survival(mutant)
    why = equivalence.why if equivalence else outside.why if outside and unreached else survival.why if survival else ""
    return Verdict(
        str(mutant.target),
        mutant.target.group,
        mutant.operator,
        mutant.lines.start,
        mutant.line,
        mutant.change,
        fates,
        why,
        equivalence is not None,
        "" if killed or unreached else mutant.diff(),
    )
