"""The release scan: one run per release, as many side by side as the machine has cores."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from queue import Empty
from typing import Any

from harness.campaign.run import Plan, Run, no_subject, run
from harness.subject.source import Source

#: Told which release is at what stage, and how far.
ScanProgress = Callable[[str, str, int, int], None]


def scan(sources: Sequence[Source], plan: Plan, progress: ScanProgress, workers: int | None = None) -> list[Run]:
    """Run `plan` on every source; the runs come back in the order of `sources`.

    A run that fails in a way of its own is a run with nothing but `unknown`: one release never takes the others down.
    """
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        events = manager.Queue()
        with ProcessPoolExecutor(workers or os.cpu_count() or 1, mp_context=context) as pool:
            futures = {pool.submit(_one, source, plan, events): source for source in sources}
            pending: set[Future[Run]] = set(futures)
            while pending:
                _, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
                _drain(events, progress)
    return [_result(future, source, plan) for future, source in futures.items()]


def _one(source: Source, plan: Plan, events: Any) -> Run:
    return run(source, plan, lambda stage, done, total: events.put((source.release, stage, done, total)))


def _drain(events: Any, progress: ScanProgress) -> None:
    while True:
        try:
            progress(*events.get_nowait())
        except Empty:
            return


def _result(future: "Future[Run]", source: Source, plan: Plan) -> Run:
    error = future.exception()
    if error is None:
        return future.result()
    return no_subject(source, plan, f"the run ended early: {type(error).__name__}: {error}")
