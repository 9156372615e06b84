"""How much of the trained drafts each sglang accepts on the emulated NPU, as acceptance runs, beside plain torch."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

from msgspec.structs import replace

import harness
from harness.errors import CannotJudge, Exit, UsageError
from harness.models.prompts import prompt, texts
from harness.models.store import TRAINED
from harness.parity import acceptance_file
from harness.parity.acceptance_comparison import Comparison, compare
from harness.parity.acceptance_exactness import Exactness, exactness
from harness.parity.acceptance_prompts import prompts_digest, template_text
from harness.parity.acceptance_run import SCHEMA, Ended, Header, Record, Reply, Run, Scored, Setting, System, assembled
from harness.parity.acceptance_verdict import Verdict
from harness.reference.session import answer
from harness.scenario.metadata import Algorithm, Executor
from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.subject.source import Source
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


class Played(NamedTuple):
    """A run of one sglang; `refusal` and `error` say how the server did not start, or ended.

    With a refusal of the device, the rest is what it does with that gate lifted.
    """

    header: Header
    records: tuple[Record, ...]
    refusal: str
    error: str


def play(supervisor: Supervisor, algorithm: Algorithm, executor: Executor) -> Played:
    """Play the session; where the release refuses the device, with that gate lifted."""
    scenario = SessionScenario(algorithm, visits(), executor)
    seen = _seen(supervisor, scenario)
    refusal = ""
    if not seen.turns and REFUSED in seen.error:
        refusal = seen.error
        scenario = replace(scenario, gate_lifted=True)
        seen = _seen(supervisor, scenario)
    release = supervisor.info.release
    graphs = executor == "graph"
    draft = str(TRAINED / algorithm)
    system = System(f"sglang {release}", release, "emulated", "float32", 1, graphs, str(TRAINED / "target"), draft, 1)
    header = Header(SCHEMA, time.strftime("%Y-%m-%d"), harness.__version__, setting(algorithm), system)
    ended = (Ended(seen.error),) if seen.error else ()
    return Played(header, (*_records(scenario, seen), *ended), refusal, seen.error)


def _records(scenario: SessionScenario, seen: SessionSeen) -> Iterator[Record]:
    """What was answered to the end, and the target in float64 along it, up to the first token that is not its own."""
    block = DRAFTED[scenario.algorithm]
    for number, got in enumerate(seen.answers):
        if not got.finished:
            continue
        text = tuple(prompt(scenario.visits[number], number))
        correct = sum(accepted * times for accepted, times in enumerate(got.accepted))
        yield Reply(number, text, got.tokens, got.verifies, correct, got.verifies * (block - 1), got.accepted)
        right = answer(scenario, number)
        same = zip(got.tokens, right.tokens, strict=False)
        place = next((place for place, (token, own) in enumerate(same) if token != own), len(right.tokens))
        yield Scored(number, "own", right.tokens[: place + 1], right.gaps[: place + 1])


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

    algorithm: Algorithm
    executor: Executor
    run: Run
    exactness: Exactness
    comparison: Comparison | None
    refusal: str
    error: str

    @property
    def verdict(self) -> Verdict | None:
        """The verdict, or None where the server ended with nothing wrong in what it had answered."""
        if self.comparison is not None:
            return self.comparison.verdict
        return self.exactness.verdict if self.exactness.verdict is Verdict.NOT_LOSSLESS else None

    @property
    def exit_status(self) -> Exit:
        """A server that ends is a finding."""
        return self.verdict.exit_status if self.verdict else Exit.FINDINGS


def scan(sources: Sequence[Source], algorithms: Sequence[Algorithm], progress: Callable[[str], None]) -> list[Cell]:
    """Every source, algorithm and executor beside the reference."""
    cells = []
    for source in sources:
        with Supervisor(source) as supervisor:
            for algorithm, executor in product(algorithms, get_args(Executor)):
                progress(f"sglang {source.release}: {algorithm} {executor}")
                cells.append(_cell(algorithm, executor, play(supervisor, algorithm, executor)))
    return cells


def _cell(algorithm: Algorithm, executor: Executor, played: Played) -> Cell:
    run = assembled(Path(f"{played.header.system.release} {algorithm} {executor}"), played.header, played.records)
    right = reference(algorithm)
    comparison = None if played.error else compare(right, run)
    exact = comparison.exactness if comparison else exactness(right, run, None)
    return Cell(algorithm, executor, run, exact, comparison, played.refusal, played.error)
