"""Runs that were made before: a scan goes on where an earlier one ended."""

import msgspec

from harness.bisect.shelf import Shelf
from harness.campaign.run import Plan, Run, example_database
from harness.subject.source import Source

_SHELF = Shelf("runs", Run)


def kept(source: Source, plan: Plan) -> Run | None:
    """The run of `plan` on `source` that was made before; None where there is none, or one that cannot be read."""
    run = _SHELF.recall(source, _question(plan)) if _repeatable(plan) else None
    return run and msgspec.structs.replace(run, subject=msgspec.structs.replace(run.subject, spec=source.spec))


def keep(source: Source, plan: Plan, run: Run) -> None:
    """Keep `run`, unless another try may come to something else: a subject that could not be started or kept."""
    if _repeatable(plan) and "subject" not in run.unknown:
        _SHELF.put(source, _question(plan), run)


def _repeatable(plan: Plan) -> bool:
    """Whether the plan draws the same scenarios every time: not from a database of examples that grows."""
    return plan.device == "emulated" and not plan.through and example_database(plan.profile) is None


def _question(plan: Plan) -> bytes:
    return repr(plan._replace(pinned=())).encode() + b"\n" + msgspec.json.encode(plan.pinned)
