"""What a subject saw: the metadata fields of each round, the inputs it changed, or the fault it met."""

from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt


class Array(msgspec.Struct, frozen=True, array_like=True):
    """An integer array on the wire: shape, and little-endian int32 values in C order."""

    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> npt.NDArray[np.int32]:
        """The array itself, read-only."""
        return np.frombuffer(self.data, dtype="<i4").reshape(self.shape)

    @staticmethod
    def of(values: npt.ArrayLike) -> "Array":
        """Pack `values`; raises OverflowError where one does not fit int32."""
        wide = np.asarray(values, dtype=np.int64)
        if wide.size and (wide.max() > 2**31 - 1 or wide.min() < -(2**31)):
            raise OverflowError(f"a metadata value does not fit int32: {wide.min()} to {wide.max()}")
        return Array(wide.shape, wide.astype("<i4").tobytes())


class Floats(msgspec.Struct, frozen=True, array_like=True):
    """A float32 array on the wire, little-endian in C order."""

    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> npt.NDArray[np.float32]:
        """The array itself, read-only."""
        return np.frombuffer(self.data, dtype="<f4").reshape(self.shape)

    @staticmethod
    def of(values: npt.ArrayLike) -> "Floats":
        """Pack `values`, rounded to float32."""
        narrow = np.ascontiguousarray(values, dtype="<f4")
        return Floats(narrow.shape, narrow.tobytes())


class BadAccess(msgspec.Struct, frozen=True, array_like=True):
    """An access to the KV cache that the sanitizer objects to: its kind, a sentence, and what the device would do."""

    kind: str
    sentence: str
    consequence: str


class Wait(msgspec.Struct, frozen=True, array_like=True):
    """How often one line of sglang (`site`) had the host wait for the device, and by what."""

    reason: str
    site: str
    count: int


class Changed(msgspec.Struct, frozen=True, array_like=True):
    """An input tensor that the call wrote to."""

    name: str
    dtype: str
    before: tuple[int, ...]
    after: tuple[int, ...]


class Seen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One round: metadata fields under sglang's own names, `error` where the backend raised instead.

    Besides the fields of `ForwardMetadata`, a graph round has `host_lengths`: the list that the graph runner
    hands to the captured operators before the replay. `never_built` names fields that this release has no code for;
    any other field that is missing is a reason to know nothing. Where attention runs, `output` has one row for each
    query row, and `accesses` what the sanitizer objects to. `waits` are the synchronisations of the round (of the
    emulated device; a real one does not tell).
    """

    fields: dict[str, Array] = {}
    changed: tuple[Changed, ...] = ()
    never_built: tuple[str, ...] = ()
    error: str = ""
    output: Floats | None = None
    accesses: tuple[BadAccess, ...] = ()
    waits: tuple[Wait, ...] = ()


class Emitted(msgspec.Struct, frozen=True, array_like=True):
    """What a verify made of one request: its accept length (the bonus included), the tokens that are emitted, and the
    bonus as it goes to the next round; seen `count` times."""

    accept_len: int
    tokens: tuple[int, ...]
    bonus: int
    count: int = 1


class Fault(msgspec.Struct, frozen=True):
    """The subject gave no observation.

    `unsupported`: this sglang has no such algorithm or option. `driver`: the harness could not drive this release.
    `crash`, `hang`, `protocol`: the process died, went over its time limit, or spoke garbage.
    """

    cause: Literal["unsupported", "driver", "crash", "hang", "protocol"]
    reason: str
    stderr: str = ""

    @property
    def last_words(self) -> str:
        """The last line of stderr that is not blank."""
        return next((line.strip() for line in reversed(self.stderr.splitlines()) if line.strip()), "")


class Forward(msgspec.Struct, frozen=True, omit_defaults=True):
    """One forward of a session, for each request of its batch (`visits`: their numbers in the scenario).

    `device` are the lengths in the device tensor `seq_lens`, `host` those published in `seq_lens_cpu`, `new_tokens` the
    tokens of an extend. `block` is D. `reads` are the KV lengths that attention was told, as many tuples as there were
    different ones, in order.
    """

    turn: int
    draft: bool
    mode: str
    visits: tuple[int, ...]
    device: tuple[int, ...]
    host: tuple[int, ...] | None = None
    new_tokens: tuple[int, ...] = ()
    block: int = 0
    replayed: bool = False
    reads: tuple[tuple[int, ...], ...] = ()


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one visit of a session got.

    `tokens` are those generated up to its end, `finished` the kind of its end, "" where there is none. Of speculation:
    `verifies` counts the verify steps, `accepted[k]` how many of them accepted k draft tokens. `overshoot` counts
    tokens that were generated beyond the end, `retractions` how often the request was put back.
    """

    tokens: tuple[int, ...] = ()
    finished: str = ""
    verifies: int = 0
    accepted: tuple[int, ...] = ()
    overshoot: int = 0
    retractions: int = 0

    @property
    def committed(self) -> int:
        """The tokens of its verifies, each with its bonus."""
        return sum((accepted + 1) * count for accepted, count in enumerate(self.accepted))


class SessionSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """One session, up to its end or to what ended it: `error`, at the turn `turns`.

    `accounts` says of each turn at which pages were lost, or held by two, which ones; `rewritten` names what a step
    published and a later one wrote to.
    """

    turns: int
    forwards: tuple[Forward, ...] = ()
    answers: tuple[Answer, ...] = ()
    accesses: tuple[BadAccess, ...] = ()
    accounts: tuple[str, ...] = ()
    rewritten: tuple[Changed, ...] = ()
    error: str = ""


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came back for one scenario: one `Seen` for each round and build, in order, or a fault.

    Of a verify scenario, one tuple for each request: everything different that was emitted, the rarest last.
    """

    seen: tuple[Seen, ...] = ()
    session: SessionSeen | None = None
    verdict: str = ""  #: of a gate scenario: "accepted", or the sentence of the refusal
    settled: tuple[tuple[str, int | str], ...] = ()  #: of a start that was accepted, server arguments as they then are
    accepted: tuple[tuple[Emitted, ...], ...] = ()
    fault: Fault | None = None
