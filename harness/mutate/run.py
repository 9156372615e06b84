"""A mutation run: what is said of sglang as it is, then of each mutant, on several subjects side by side."""

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Literal, NamedTuple, TypeVar

import msgspec

from harness.checks.check import Check
from harness.mutate.judging import Baseline, Subject, Word, alone
from harness.mutate.mutant import Mutant
from harness.mutate.scenes import Layer, Scene
from harness.subject.patch import Patch
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor


class Pass(NamedTuple):
    """At most `most` scenes of `layer` that run a mutant, for the checks that compare variants, or for the others.

    The first frames have `frame` scenes: a mutant that is killed is killed by the first ones, most often.
    """

    layer: Layer
    variants: bool
    most: int
    frame: int


#: What a mutant goes through until it is killed: variants come last, as they cost some ten times as much.
PASSES = (
    Pass("guard", False, 6, 6),
    Pass("metadata", False, 240, 4),
    Pass("attention", False, 48, 2),
    Pass("metadata", True, 12, 4),
    Pass("attention", True, 4, 2),
    Pass("accept", False, 24, 4),
    Pass("sessions", False, 3, 1),
    Pass("sessions", True, 3, 1),
    Pass("sweep", False, 240, 24),
)
#: Scenes of a pass that are in small frames, and how many there are in those behind.
FIRST, LATER = 12, 24
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
    pool: Pool, scenes: Sequence[Scene], checks: Sequence[Check], files: Sequence[str], progress: Progress
) -> Baseline:
    """What all checks say of every scene without a mutant, and which lines of `files` it runs."""

    def one(supervisor: Supervisor, number: int) -> tuple[frozenset[Word], dict[str, frozenset[int]]]:
        scene = scenes[number]
        subject = Subject(supervisor, traced=True)
        (words,) = subject.words(alone(checks) if scene.layer == "sweep" else checks, [scene.scenario])
        return frozenset(words), {file: frozenset(subject.lines.get(file, ())) for file in files}

    found = pool.each(one, len(scenes), lambda done: progress("as it is", done, len(scenes)))
    return Baseline([words for words, _ in found], [lines for _, lines in found])


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

    They are taken in an order of chance, so that those that were tried are a fair sample of all: none is begun after
    `until`, of the clock `time.monotonic`.
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
        return fate(supervisor, mutant.patch, reaching, scenes, right, checks)

    found = pool.each(one, len(mutants), lambda done: progress("mutants", done, len(mutants)))
    return [fate for _, fate in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def fate(
    supervisor: Supervisor,
    patch: Patch,
    reaching: Sequence[int],
    scenes: Sequence[Scene],
    right: Baseline,
    checks: Sequence[Check],
) -> Fate:
    """Put a patched sglang to the scenes `reaching` until a check says what it says of none without the patch."""
    if not reaching:
        return Fate("unreached")
    start = time.monotonic()
    subject = Subject(supervisor, patch)
    known, masked, count = right.known, Fate("survived"), 0
    by_itself = alone(checks)
    others = [check for check in checks if check not in by_itself]
    for one, frame in _frames(reaching, scenes):
        scenarios, asked = [scenes[number].scenario for number in frame], others if one.variants else by_itself
        for place, words in enumerate(subject.words(asked, scenarios)):
            new = [word for word in words if (word.check, word.fingerprint) not in known]
            if new:
                seen = [*new, *_also(subject, checks, asked, scenarios[place], known)]
                names = tuple(sorted({"subject" if word.unknown else word.check for word in seen}))
                seconds = time.monotonic() - start
                return Fate("killed", names, one.layer, count + place + 1, seconds, new[0].message)
            if set(words) - right.words[frame[place]] and masked.status == "survived":
                name = next(iter(set(words) - right.words[frame[place]]))
                masked = Fate("masked", (name.check,), one.layer, count + place + 1, 0.0, name.message)
        count += len(frame)
    return msgspec.structs.replace(masked, scenarios=count, seconds=time.monotonic() - start)


def _also(
    subject: Subject, checks: Sequence[Check], said: Sequence[Check], scenario: object, known: set[tuple[str, str]]
) -> list[Word]:
    """What the other checks say of the scenario that has killed, so that each has its share in the score."""
    others = [check for check in checks if check not in said]
    (words,) = subject.words(others, [scenario])  # type: ignore[list-item]
    return [word for word in words if (word.check, word.fingerprint) not in known and not word.unknown]


def _frames(reaching: Sequence[int], scenes: Sequence[Scene]) -> Iterator[tuple[Pass, list[int]]]:
    """The numbers of the scenes of each pass in their order, cut into frames."""
    for one in PASSES:
        numbers = [number for number in reaching if scenes[number].layer == one.layer][: one.most]
        for part, size in ((numbers[:FIRST], one.frame), (numbers[FIRST:], LATER)):
            for start in range(0, len(part), size):
                yield one, part[start : start + size]
