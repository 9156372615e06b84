"""Runs that were made before, in the cache: a scan goes on where an earlier one ended, and is never stale."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from harness.bisect.identity import harness_digest, sglang_digest, surroundings_digest
from harness.cache import cache_dir
from harness.campaign.run import Plan, Run, example_database
from harness.files import safe_name, write_atomically
from harness.subject.source import Source

#: Runs of one release that are kept: each change of the harness makes a new one.
MOST_KEPT = 20


def kept(source: Source, plan: Plan) -> Run | None:
    """The run of `plan` on `source` that was made before; None where there is none, or one that cannot be read."""
    if not _repeatable(plan):
        return None
    try:
        run = msgspec.json.decode(_path(source, plan).read_bytes(), type=Run)
    except (OSError, msgspec.DecodeError):
        return None
    return msgspec.structs.replace(run, subject=msgspec.structs.replace(run.subject, spec=source.spec))


def keep(source: Source, plan: Plan, run: Run) -> None:
    """Keep `run`, unless another try may come to something else: a subject that could not be started or kept."""
    if not _repeatable(plan) or "subject" in run.unknown:
        return
    path = _path(source, plan)
    write_atomically(path, msgspec.json.encode(run), durable=False)
    with suppress(OSError):  # another scan may tidy up, too
        own = path.parent.glob(f"{safe_name(source.release)}-*.json")
        for file in sorted(own, key=lambda one: one.stat().st_mtime_ns)[:-MOST_KEPT]:
            file.unlink(missing_ok=True)


def _repeatable(plan: Plan) -> bool:
    """Whether the plan draws the same scenarios every time: not from a database of examples that grows."""
    return plan.device == "emulated" and not plan.through and example_database(plan.profile) is None


def _path(source: Source, plan: Plan) -> Path:
    answers = [harness_digest(), sglang_digest(source), surroundings_digest(), repr(plan._replace(pinned=()))]
    digest = sha256("\n".join(answers).encode() + msgspec.json.encode(plan.pinned)).hexdigest()
    return cache_dir() / "runs" / f"{safe_name(source.release)}-{digest[:32]}.json"
