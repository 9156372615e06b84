"""The engine subject: how long until it serves, and for a turn: `python -m benchmarks.engine [--sglang SPEC]`.

Start-up is the time of the first session less that of a later one: `sglang.Engine` from its call until it serves, with
what the template still has to import. A turn is the time of a session by its turns, all that the harness does between
two sessions included.
"""

import time
from statistics import median
from typing import Annotated, Optional

import typer

from benchmarks.measures import Measure, show
from harness.scenario.session import SessionScenario, Subject, Visit
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor

#: Four requests that are answered side by side, with prompts of one to three pages.
VISITS = tuple(Visit(length=100 + 60 * number, new_tokens=24, text=number) for number in range(4))


def engine(source: Source, repeats: int) -> list[Measure]:
    """Start-up of an engine, and a turn of it beside a turn of the workers alone, in turns; eager DFLASH."""
    spent: dict[Subject, list[float]] = {"engine": [], "worker": []}
    first: dict[Subject, float] = {}
    turns = 0
    with Supervisor(source) as supervisor:
        for subject in spent:
            first[subject], turns = _played(supervisor, subject)
        for _ in range(repeats):
            for subject, seconds in spent.items():
                seconds.append(_played(supervisor, subject)[0])
    whole, alone = median(spent["engine"]), median(spent["worker"])
    return [
        Measure("engine: start-up", first["engine"] - whole, "s", 45, "less"),
        Measure("engine: a turn with four requests", whole / turns, "s", 0.3, "less"),
        Measure("engine: the same turn per one of the workers alone", whole / alone, "", 0, "less"),
    ]


def _played(supervisor: Supervisor, subject: Subject) -> tuple[float, int]:
    """Seconds of one session, and its turns."""
    start = time.perf_counter()
    (observation,) = supervisor.observe([SessionScenario("DFLASH", VISITS, subject=subject)])
    seen = observation.session
    if seen is None or seen.error:
        raise SystemExit(f"the session was not played: {observation.fault or (seen and seen.error)}")
    return time.perf_counter() - start, seen.turns


def main(
    sglang: Annotated[Optional[str], typer.Option(help="Which sglang; the default of `harness check`.")] = None,
    repeats: Annotated[int, typer.Option(help="Sessions that are measured, after the first.")] = 5,
) -> None:
    """Measure the engine subject."""
    show(engine(resolve(sglang), repeats))


if __name__ == "__main__":
    typer.run(main)
