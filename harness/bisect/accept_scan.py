"""What each release accepts of the trained drafts, side by side, beside what plain torch accepts."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product
from typing import get_args

import msgspec

from harness.bisect.scan import ScanProgress, side_by_side
from harness.bisect.shelf import Shelf
from harness.campaign.accept_tiny import Cell, Played, judged, not_played, play
from harness.errors import CannotJudge
from harness.parity.acceptance_family import held
from harness.scenario.metadata import Algorithm, Executor
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

_SHELF = Shelf("accept", Played)


def scan(
    sources: Sequence[Source],
    algorithms: Sequence[Algorithm],
    progress: ScanProgress,
    workers: int | None = None,
    anew: bool = False,
) -> list[Cell]:
    """Every source, algorithm and executor beside the reference, in this order; `workers` releases at once.

    What was played before is taken from the cache, unless all is to be played `anew`; each session is kept as soon as
    it is over, so a scan that is killed goes on. A release that cannot be asked is told as such, and stops no other.
    The cells are judged as a family.
    """
    played = side_by_side(sources, lambda source: list(_played(source, algorithms, progress, anew)), workers)
    # Judged in one thread: what the target answers is computed once, and remembered for all releases.
    cells = [judged(one) for release in played for one in release]
    family = iter(held([cell.comparison for cell in cells if cell.comparison]))
    return [cell._replace(comparison=next(family)) if cell.comparison else cell for cell in cells]


def _played(source: Source, algorithms: Sequence[Algorithm], progress: ScanProgress, anew: bool) -> Iterator[Played]:
    cells: list[tuple[Algorithm, Executor]] = list(product(algorithms, get_args(Executor)))
    lost = ""
    with ExitStack() as stack:
        supervisor: Supervisor | None = None
        for done, (algorithm, executor) in enumerate(cells):
            question = msgspec.json.encode((algorithm, executor))
            earlier = None if anew else _SHELF.recall(source, question)
            kept = " kept from an earlier scan" if earlier else ""
            progress(source.release, f"{algorithm} {executor}{kept}", done, len(cells))
            if earlier is not None:
                yield earlier
                continue
            try:
                if not lost:
                    supervisor = supervisor or stack.enter_context(Supervisor(source))
                    new = play(supervisor, algorithm, executor)
                    _SHELF.put(source, question, new)
                    yield new
            except CannotJudge as error:
                lost = str(error)
            if lost:
                yield not_played(source.release, algorithm, executor, lost)
        progress(source.release, "played", len(cells), len(cells))
