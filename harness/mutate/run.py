"""A mutation run: what is said of sglang as it is, then of each mutant, on several subjects side by side."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import takewhile
from queue import SimpleQueue
from typing import Literal, NamedTuple, TypeVar

import msgspec

from harness.checks.check import Check
from harness.checks.gate import GATES
from harness.mutate.judging import Baseline, Subject, Word, alone
from harness.mutate.mutant import Mutant
from harness.mutate.scenes import Layer, Scene, asked
from harness.scenario import Scenario
from harness.subject.patch import Patch
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor


class Pass(NamedTuple):
    """At most `most` scenes of `layer` that run a mutant, for the checks that compare variants, or for the others."""

    layer: Layer
    variants: bool
    most: int


#: What a mutant goes through until it is killed: variants come last, as they cost some ten times as much.
PASSES = (
    Pass("guard", False, len(GATES)),
    Pass("metadata", False, 240),
    Pass("attention", False, 48),
    Pass("metadata", True, 12),
    Pass("attention", True, 4),
    Pass("accept", False, 24),
    Pass("sessions", False, 8),
    Pass("sessions", True, 3),
    Pass("sweep", False, 240),
)
SUBJECTS = 2
#: Scenes that a mutant is put to which is argued to be equivalent.
FEW = 8

Done = TypeVar("Done")
Status = Literal["killed", "masked", "survived", "unreached"]
#: Told what the run is at, and how far.
Progress = Callable[[str, int, int], None]


class Fate(msgspec.Struct, frozen=True):
    """What became of a mutant.

    `killed`: `checks` said something at the scene number `scenarios` of those that run it, which no check says of
    sglang as it is; `subject` stands for a mutant that lost the subject. `masked`: all that was said is known, of other
    scenarios. `unreached`: no scene runs it.
    """

    status: Status
    checks: tuple[str, ...] = ()
    layer: str = ""
    scenarios: int = 0
    seconds: float = 0.0
    message: str = ""


class Pool:
    """Subjects of one sglang, each for one thread at a time."""

    def __init__(self, source: Source, size: int = SUBJECTS) -> None:
        self.size = size
        self.stack = ExitStack()
        self.free: SimpleQueue[Supervisor] = SimpleQueue()
        self.threads = ThreadPoolExecutor(size)
        started = list(self.threads.map(lambda number: Supervisor(source), range(size)))
        for supervisor in started:
            self.stack.enter_context(supervisor)
            self.free.put(supervisor)
        self.info = started[0].info
        self.release = source.release

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *error: object) -> None:
        self.threads.shutdown(cancel_futures=True)
        self.stack.close()

    def each(self, work: Callable[[Supervisor, int], Done], count: int, told: Callable[[int], None]) -> list[Done]:
        """`work` with a free subject for each number below `count`; `told` gets how many are done."""
        done = 0

        def one(number: int) -> Done:
            nonlocal done
            supervisor = self.free.get()
            try:
                return work(supervisor, number)
            finally:
                self.free.put(supervisor)
                done += 1
                told(done)

        return list(self.threads.map(one, range(count)))


def baseline(
    pool: Pool,
    scenes: Sequence[Scene],
    checks: Sequence[Check],
    files: Sequence[str],
    progress: Progress,
    until: float = math.inf,
) -> Baseline:
    """What is said of every scene without a mutant, and which lines of `files` it runs.

    No scene is begun after `until`, of the clock `time.monotonic`: the baseline then is of the first ones alone.
    """

    def one(supervisor: Supervisor, number: int) -> tuple[frozenset[Word], dict[str, frozenset[int]]] | None:
        if time.monotonic() > until:
            return None
        scene = scenes[number]
        subject = Subject(supervisor, traced=True)
        own = asked(scene.layer, checks)
        (words,) = subject.words(alone(own) if scene.layer == "sweep" else own, [scene.scenario])
        return frozenset(words), {file: frozenset(subject.lines.get(file, ())) for file in files}

    answers = pool.each(one, len(scenes), lambda done: progress("as it is", done, len(scenes)))
    found = list(takewhile(lambda answer: answer is not None, answers))
    return Baseline([answer[0] for answer in found if answer], [answer[1] for answer in found if answer])


def fates(
    pool: Pool,
    mutants: Sequence[Mutant],
    few: Sequence[bool],
    scenes: Sequence[Scene],
    right: Baseline,
    checks: Sequence[Check],
    progress: Progress,
    until: float = math.inf,
) -> list[Fate | None]:
    """The fate of each mutant; one that is put to `few` scenes is argued to survive them all.

    They are taken in an order of chance, so that those that were tried are a fair sample of all: what has no fate by
    `until`, of the clock `time.monotonic`, gets none.
    """
    order = random.Random(0).sample(range(len(mutants)), len(mutants))

    def one(supervisor: Supervisor, place: int) -> Fate | None:
        if time.monotonic() > until:
            return None
        number = order[place]
        mutant = mutants[number]
        reaching = right.reaching(mutant.target.file, mutant.lines)
        if few[number]:
            reaching = reaching[:: max(1, len(reaching) // FEW)][:FEW]
        return fate(supervisor, mutant.patch, reaching, scenes, right, checks, until)

    found = pool.each(one, len(mutants), lambda done: progress("mutants", done, len(mutants)))
    return [fate for _, fate in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def fate(
    supervisor: Supervisor,
    patch: Patch,
    reaching: Sequence[int],
    scenes: Sequence[Scene],
    right: Baseline,
    checks: Sequence[Check],
    until: float = math.inf,
) -> Fate | None:
    """Put a patched sglang to the scenes `reaching` until a check says what it says of none without the patch.

    None where that takes longer than `until`, of the clock `time.monotonic`.
    """
    if not reaching:
        return Fate("unreached")
    start = time.monotonic()
    subject = Subject(supervisor, patch)
    known, masked, count = right.known, Fate("survived"), 0
    by_itself = alone(checks)
    others = [check for check in checks if check not in by_itself]
    for one, number in _turns(reaching, scenes):
        if time.monotonic() > until:
            return None
        count += 1
        scenario, own = scenes[number].scenario, asked(one.layer, others if one.variants else by_itself)
        (words,) = subject.words(own, [scenario])
        new = [word for word in words if (word.check, word.fingerprint) not in known]
        if new:
            rest = [check for check in asked(one.layer, checks) if check not in own]
            seen = [*new, *_also(subject, rest, scenario, known)]
            names = tuple(sorted({"subject" if word.unknown else word.check for word in seen}))
            return Fate("killed", names, one.layer, count, time.monotonic() - start, new[0].message)
        if masked.status == "survived" and (said := set(words) - right.words[number]):
            name = next(iter(said))
            masked = Fate("masked", (name.check,), one.layer, count, 0.0, name.message)
    return msgspec.structs.replace(masked, scenarios=count, seconds=time.monotonic() - start)


def _also(subject: Subject, checks: Sequence[Check], scenario: Scenario, known: set[tuple[str, str]]) -> list[Word]:
    """What the other checks say of the scenario that has killed, so that each has its share in the score."""
    (words,) = subject.words(checks, [scenario])
    return [word for word in words if (word.check, word.fingerprint) not in known and not word.unknown]


def _turns(reaching: Sequence[int], scenes: Sequence[Scene]) -> Iterator[tuple[Pass, int]]:
    """The numbers of the scenes of each pass, in their order."""
    for one in PASSES:
        for number in [number for number in reaching if scenes[number].layer == one.layer][: one.most]:
            yield one, number
