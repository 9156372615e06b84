"""How much of the trained drafts each sglang accepts on the emulated NPU, as acceptance runs, beside plain torch."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

import harness
from harness.errors import CannotJudge, Exit, UsageError
from harness.models.prompts import prompt, texts
from harness.models.store import TRAINED
from harness.parity import acceptance_file
from harness.parity.acceptance_comparison import Comparison, compare
from harness.parity.acceptance_exactness import Exactness, exactness
from harness.parity.acceptance_prompts import prompts_digest, template_text
from harness.parity.acceptance_run import (
    SCHEMA,
    STEP_TOKENS,
    Ended,
    Header,
    Record,
    Reply,
    Run,
    Scored,
    Setting,
    Step,
    System,
    assembled,
)
from harness.parity.acceptance_verdict import Verdict
from harness.reference.transformer import forced
from harness.scenario.metadata import Algorithm, Executor
from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.scenario.validity import MAX_REQUESTS
from harness.subject.supervisor import Supervisor

#: In the sentence by which a release refuses a device.
REFUSED = "device"
#: Algorithms that have a trained draft, with the tokens of a verify.
DRAFTED: dict[Algorithm, int] = {"DFLASH": 8, "EAGLE": 4}
#: Tokens that each visit asks for.
NEW_TOKENS = 48
#: Visits at once: what the session's server runs.
CONCURRENCY = 8


def drafted(name: str) -> Algorithm:
    """The algorithm of that name; raises UsageError where there is no trained draft for it."""
    for algorithm in DRAFTED:
        if name == algorithm:
            return algorithm
    raise UsageError(f"there is no trained draft for {name!r}: there is one for {', '.join(DRAFTED)}.")


def visits() -> tuple[Visit, ...]:
    """A visit for every text of the trained pair, more than a batch holds, so that some queue."""
    return tuple(
        Visit(len(text), NEW_TOKENS, text=number, own=0, arrives=number) for number, text in enumerate(texts())
    )


def setting(algorithm: Algorithm) -> Setting:
    """The setting of every run of the trained pair."""
    prompts = texts()
    template = template_text("plain", thinking=False)
    block = DRAFTED[algorithm]
    return Setting(prompts_digest(prompts), len(prompts), template, False, NEW_TOKENS, CONCURRENCY, algorithm, block)


class Played(msgspec.Struct, frozen=True):
    """A run of one sglang; `refusal` and `error` say how the server did not start, or ended.

    With a refusal of the device, the rest is what it does with that gate lifted. `unknown` says why nothing is known.
    """

    header: Header
    executor: Executor
    replies: tuple[Reply, ...] = ()
    refusal: str = ""
    error: str = ""
    unknown: str = ""

    @property
    def algorithm(self) -> Algorithm:
        """The algorithm of its setting."""
        return drafted(self.header.setting.algorithm)


def play(supervisor: Supervisor, algorithm: Algorithm, executor: Executor) -> Played:
    """Play the session; where the release refuses the device, with that gate lifted.

    Raises CannotJudge where the subject is lost.
    """
    scenario = SessionScenario(algorithm, visits(), executor)
    seen = _seen(supervisor, scenario)
    refusal = ""
    if not seen.turns and REFUSED in seen.error:
        refusal = seen.error
        scenario = replace(scenario, gate_lifted=True)
        seen = _seen(supervisor, scenario)
    header = _header(supervisor.info.release, algorithm, executor)
    return Played(header, executor, tuple(_replies(scenario, seen)), refusal, seen.error)


def replayed(supervisor: Supervisor, played: Played, base: Run, stride: int) -> tuple[Step, ...]:
    """How many drafts the first verify accepts after every `stride` tokens of the base's answers.

    Each step is a visit of two tokens, the first from the prefill of prompt and prefix, the second from the verify.
    Raises CannotJudge where the server ends, or takes another number of verifies.
    """
    places = [
        (number, start)
        for number, reply in sorted(base.replies.items())
        for start in range(0, len(reply.tokens), stride)
    ]
    sessions = (places[first : first + MAX_REQUESTS] for first in range(0, len(places), MAX_REQUESTS))
    return tuple(step for session in sessions for step in _steps(supervisor, played, base, session))


def _steps(supervisor: Supervisor, played: Played, base: Run, places: Sequence[tuple[int, int]]) -> Iterator[Step]:
    """The steps of one session; `places` are prompts and tokens of their answers."""
    prefixes = [(*base.replies[number].prompt, *base.replies[number].tokens[:start]) for number, start in places]
    visits = tuple(
        Visit(len(given), STEP_TOKENS, own=0, arrives=turn, given=given) for turn, given in enumerate(prefixes)
    )
    scenario = SessionScenario(played.algorithm, visits, played.executor, gate_lifted=bool(played.refusal))
    seen = _seen(supervisor, scenario)
    release = supervisor.info.release
    if seen.error:
        raise CannotJudge(f"sglang {release} ends while steps are replayed: {seen.error}")
    for (number, start), got in zip(places, seen.answers, strict=True):
        if sum(got.accepted) != 1:
            raise CannotJudge(
                f"sglang {release} took {sum(got.accepted)} verifies to the second token, where one is enough."
            )
        yield Step(number, start, got.accepted.index(1))


def not_played(release: str, algorithm: Algorithm, executor: Executor, why: str) -> Played:
    """Of a release that could not be asked."""
    return Played(_header(release, algorithm, executor), executor, unknown=why)


def _header(release: str, algorithm: Algorithm, executor: Executor) -> Header:
    model, draft = str(TRAINED / "target"), str(TRAINED / algorithm)
    system = System(f"sglang {release}", release, "emulated", "float32", 1, executor == "graph", model, draft, 1)
    return Header(SCHEMA, time.strftime("%Y-%m-%d"), harness.__version__, setting(algorithm), system)


def _replies(scenario: SessionScenario, seen: SessionSeen) -> Iterator[Reply]:
    """What was answered to the end."""
    block = DRAFTED[scenario.algorithm]
    for number, got in enumerate(seen.answers):
        if got.finished:
            text = tuple(prompt(scenario.visits[number], number))
            correct = sum(accepted * times for accepted, times in enumerate(got.accepted))
            yield Reply(number, text, got.tokens, got.verifies, correct, got.verifies * (block - 1), got.accepted)


def records(played: Played) -> Iterator[Record]:
    """The run as records: beside each reply the target in float64, forced along it."""
    for reply in played.replies:
        yield reply
        yield Scored(reply.number, "own", *forced(TRAINED / "target", reply.prompt, reply.tokens))
    if played.error:
        yield Ended(played.error)


def _seen(supervisor: Supervisor, scenario: SessionScenario) -> SessionSeen:
    (observation,) = supervisor.observe([scenario])
    if observation.session is None:
        fault = observation.fault
        raise CannotJudge(f"sglang {supervisor.info.release} played no session: {fault.reason if fault else 'no word'}")
    return observation.session


def reference(algorithm: Algorithm) -> Run:
    """What plain torch accepts of the trained draft: `python -m fixtures.make_tiny_pair.accepted` has written it."""
    return acceptance_file.read(TRAINED / f"{algorithm}.accept.jsonl")


class Cell(NamedTuple):
    """One sglang beside the reference. Of a server that ended only what it had answered is judged, token by token."""

    played: Played
    run: Run
    exactness: Exactness
    comparison: Comparison | None

    @property
    def name(self) -> tuple[Algorithm, Executor]:
        """What distinguishes the cells of a release."""
        return self.played.algorithm, self.played.executor

    @property
    def verdict(self) -> Verdict | None:
        """The verdict; None where there is none: the server ended with nothing wrong in what it had answered, or
        could not be asked."""
        if self.comparison is not None:
            return self.comparison.verdict
        return self.exactness.verdict if self.exactness.verdict is Verdict.NOT_LOSSLESS else None

    @property
    def exit_status(self) -> Exit:
        """A server that ends is a finding; one that could not be asked is unknown."""
        if self.played.unknown:
            return Exit.UNKNOWN
        return self.verdict.exit_status if self.verdict else Exit.FINDINGS


def judged(played: Played) -> Cell:
    """What was played, beside the reference."""
    name = f"{played.header.system.release} {played.algorithm} {played.executor}"
    run, right = assembled(Path(name), played.header, records(played)), reference(played.algorithm)
    comparison = None if played.error or played.unknown else compare(right, run)
    return Cell(played, run, comparison.exactness if comparison else exactness(right, run, None), comparison)
