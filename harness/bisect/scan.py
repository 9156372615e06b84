"""The release scan: one run per release, as many side by side as this process may use cores."""

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from harness.bisect.kept_runs import keep, kept
from harness.campaign.run import Plan, Run, no_subject, run
from harness.subject.source import Source
from harness.subject.template import die_with_parent

#: Told which release is at what stage, and how far; from several threads.
ScanProgress = Callable[[str, str, int, int], None]
Made = TypeVar("Made")


def cores() -> int:
    """The cores that this process may run on, which are fewer than the machine's under `taskset` or in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(sources: Sequence[Source], make: Callable[[Source], Made], workers: int | None = None) -> list[Made]:
    """What `make` makes of every source, in their order, for `workers` at once; one for each core where it is None.

    `make` is called in a thread, so the work has to be another process's.
    """
    with ThreadPoolExecutor(workers or cores()) as threads:
        return list(threads.map(make, sources))


def scan(
    sources: Sequence[Source], plan: Plan, progress: ScanProgress, workers: int | None = None, anew: bool = False
) -> list[Run]:
    """Run `plan` on every source; the runs come back in the order of `sources`.

    Each run has a process of its own, since Hypothesis has a state per process. One that fails or is killed is a run
    with nothing but `unknown`: one release never takes the others down. A run that was made before is taken from the
    cache, unless all is to be made `anew`; each is kept as soon as it is made, so a scan that is killed goes on.
    """

    def made(source: Source) -> Run:
        earlier = None if anew else kept(source, plan)
        if earlier is not None:
            progress(source.release, "kept from an earlier run", 1, 1)
            return earlier
        new = _watch(source, plan, progress)
        keep(source, plan, new)
        return new

    return side_by_side(sources, made, workers)


def _watch(source: Source, plan: Plan, progress: ScanProgress) -> Run:
    """Start the run of one source and pass on what it tells, until it has told its end."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_report, args=(source, plan, sending, os.getpid()))
    process.start()
    sending.close()
    try:
        while True:
            kind, content = receiving.recv()
            if kind == "progress":
                progress(source.release, *content)
            else:
                break
    except EOFError:
        process.join()
        kind, content = "failed", f"its process ended with status {process.exitcode}"
    process.join()
    return content if kind == "run" else no_subject(source, plan, f"the run ended early: {content}")


def _report(source: Source, plan: Plan, sending: Any, scanning: int) -> None:
    """Make the run and tell it; a scan that is killed takes its runs with it."""
    if os.getpid() != scanning:
        die_with_parent(scanning)
    try:
        done = run(source, plan, lambda *step: sending.send(("progress", step)))
        sending.send(("run", done))
    except Exception as error:
        sending.send(("failed", f"{type(error).__name__}: {error}"))
