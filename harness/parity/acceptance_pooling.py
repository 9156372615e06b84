"""Two runs of one system on different prompts as one run: what the second of two looks is taken at."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from msgspec.structs import replace

from harness.errors import UsageError
from harness.parity.acceptance_run import Ended, Record, Run, assembled, require_same_setting


def pooled(first: Run, second: Run) -> Run:
    """Both runs, the prompts of the second numbered behind those of the first.

    Raises UsageError where they differ in more than their prompts, where a prompt is in both, or where only one of
    them was scored and replayed along another run.
    """
    mine, theirs = first.header, second.header
    like_first = replace(theirs.setting, prompts=mine.setting.prompts, count=mine.setting.count)
    require_same_setting(mine.setting, first.path, like_first, second.path)
    if mine.stride != theirs.stride or bool(mine.base) != bool(theirs.base):
        raise UsageError(f"{first.path} and {second.path} were not recorded alike: they differ in --stride or --base.")
    known = {reply.prompt for reply in first.replies.values()}
    again = next((number for number, reply in second.replies.items() if reply.prompt in known), None)
    if again is not None:
        raise UsageError(
            f"prompt {again} of {second.path} is one of {first.path}, too: the second look takes fresh prompts "
            f"(`harness accept run --skip {mine.setting.count}`)."
        )
    digest = sha256(f"{mine.setting.prompts}{theirs.setting.prompts}".encode()).hexdigest()
    setting = replace(mine.setting, prompts=digest, count=mine.setting.count + theirs.setting.count)
    base = f"{mine.base}{theirs.base}"
    header = replace(mine, setting=setting, base=base)
    path = Path(f"{first.path} and {second.path}")
    records = [*_records(first, 0), *_records(second, mine.setting.count)]
    # Whose base is its own is known by its answers: those of both, in the same order as in `base`.
    return assembled(path, header, records)._replace(digest=f"{first.digest}{second.digest}")


def _records(run: Run, behind: int) -> Iterator[Record]:
    for records in (run.replies, run.own, run.base, run.steps):
        for record in records.values():
            yield replace(record, number=record.number + behind)
    for reason in run.ended:
        yield Ended(reason)
