"""An acceptance run: what one system accepted of its drafts, as data: a header, and a record for each answer."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from harness.errors import CannotJudge, UsageError

SCHEMA = 1
#: The first token comes from the prefill, the second from the one verify of a replayed step.
STEP_TOKENS = 2


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What two runs must agree in to be compared: acceptance depends on each of these.

    `prompts` is a digest of all prompts as they were sent; `draft_tokens` counts those that a verify looks at, the
    last known token included.
    """

    prompts: str
    count: int
    template: str
    thinking: bool
    new_tokens: int
    concurrency: int
    algorithm: str
    draft_tokens: int


class System(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who was asked: recorded, and free to differ."""

    where: str
    release: str
    device: str
    dtype: str
    tensor_parallel: int
    graphs: bool
    model: str
    draft: str
    seed: int


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="run"):
    """The first line.

    `base` is the digest of the run whose answers are scored and replayed; empty: its own. `stride` is the distance of
    the replayed steps in tokens, 0 where none are replayed. `order` is the seed of the order in which prompts are sent,
    0 where it is that of the file.
    """

    schema: int
    date: str
    harness: str
    setting: Setting
    system: System
    base: str = ""
    stride: int = 0
    order: int = 0


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="reply"):
    """The answer to a prompt in the free run, with the server's own counts.

    `correct` counts accepted drafts, `proposed` all; `histogram[k]` the verifies that accepted k drafts. `reported` is
    the acceptance length as the server rounds it up itself: tokens of the answer for each verify.
    """

    number: int
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    verifies: int
    correct: int
    proposed: int
    histogram: tuple[int, ...]
    reported: float = 0.0


class Scored(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="scored"):
    """The target alone, forced along an answer: its own choice at each place, and by how much it led the next best.

    `of` says whose answer: the run's own, or the one of its base. Gaps are differences of log-probabilities in nats.
    Past the first choice that is not the answer's there may be none.
    """

    number: int
    of: Literal["own", "base"]
    choices: tuple[int, ...]
    gaps: tuple[float, ...]


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="step"):
    """One verify after the first `start` tokens of the base's answer: how many drafts were accepted."""

    number: int
    start: int
    correct: int


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="ended"):
    """The run stopped before its end, and why; it may have been resumed since."""

    reason: str


Record = Reply | Scored | Step | Ended


class Run(NamedTuple):
    """A run as it was read: records by what they are about, and a SHA-256 of its answers."""

    path: Path
    header: Header
    replies: Mapping[int, Reply]
    own: Mapping[int, Scored]
    base: Mapping[int, Scored]
    steps: Mapping[tuple[int, int], Step]
    ended: tuple[str, ...]
    digest: str

    @property
    def base_digest(self) -> str:
        """Whose answers are scored and replayed."""
        return self.header.base or self.digest

    @property
    def texts(self) -> Mapping[int, Scored]:
        """The target along the base's answers, which are its own where it is its own base."""
        return self.base if self.header.base else self.own


def assembled(path: Path, header: Header, records: Iterable[Record]) -> Run:
    """The run that records make; of two about the same the later counts."""
    replies: dict[int, Reply] = {}
    scored: dict[str, dict[int, Scored]] = {"own": {}, "base": {}}
    steps: dict[tuple[int, int], Step] = {}
    ended: list[str] = []
    for record in records:
        match record:
            case Reply():
                replies[record.number] = record
            case Scored():
                scored[record.of][record.number] = record
            case Step():
                steps[record.number, record.start] = record
            case Ended():
                ended.append(record.reason)
    texts = [(number, replies[number].prompt, replies[number].tokens) for number in sorted(replies)]
    digest = hashlib.sha256(msgspec.json.encode(texts)).hexdigest()
    return Run(path, header, replies, scored["own"], scored["base"], steps, tuple(ended), digest)


def require_whole(run: Run) -> None:
    """Raise CannotJudge where prompts are not answered: those that are would speak for all."""
    count = run.header.setting.count
    if len(run.replies) < count:
        why = f" ({run.ended[-1].rstrip('.')})" if run.ended else ""
        raise CannotJudge(
            f"{run.path} has answers to {len(run.replies)} of {count} prompts{why}: the same "
            "`harness accept run` goes on where it stopped."
        )


def require_same_setting(mine: Setting, path: Path, theirs: Setting, other: Path) -> None:
    """Raise UsageError where two runs cannot be compared, with all that differs."""
    ours, others = msgspec.structs.asdict(mine), msgspec.structs.asdict(theirs)
    differing = [f"{name} ({ours[name]!r} and {others[name]!r})" for name in ours if ours[name] != others[name]]
    if differing:
        raise UsageError(f"{path} and {other} cannot be compared: they differ in {', '.join(differing)}.")
