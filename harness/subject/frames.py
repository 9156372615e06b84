"""Length-prefixed msgpack over a pair of file descriptors, with a time limit on reading.

The whole protocol: a subject says `Hello` once, then answers each `Observe` with one `Observed`. The same frames
work through `ssh`, `docker exec` or a wrapper script, since nothing but stdin and stdout is used.
"""

import os
import select
import struct
import time

import msgspec

from harness.scenario import Scenario, SessionScenario
from harness.scenario.observation import Fault, Observation
from harness.shadow.overhead import Overhead
from harness.subject.patch import Patch

PREFIX = struct.Struct("<I")
#: No honest frame is larger; a larger length is text that was read as one (four blanks or digits are larger).
MAX_FRAME = 1 << 27


class SubjectInfo(msgspec.Struct, frozen=True):
    """Who answered: part of every report.

    `release` and `revision` name the sglang, `device` is `emulated` or the name of the accelerator, `versions` has
    torch, torch_npu, CANN, Python and the device's driver, `capabilities` what the release has that others have not
    (see `releases.py`). `kind` is whose attention runs, and `dtype` what it computes in.
    """

    kind: str
    release: str
    device: str
    versions: dict[str, str]
    capabilities: tuple[str, ...] = ()
    revision: str = ""
    spec: str = ""
    dtype: str = "float32"

    @property
    def noise(self) -> str:
        """What its noise is measured under: a GPU runs several backends, anything else is one backend's alone."""
        several = self.device.startswith("cuda:") and self.kind != "triton"
        return "/".join([self.device, self.dtype, *([self.kind] if several else [])])


class Hello(msgspec.Struct, frozen=True, tag=True):
    """The subject is ready, or says why it never will be."""

    info: SubjectInfo | None = None
    fault: Fault | None = None


class Observe(msgspec.Struct, frozen=True, tag=True):
    """Run these scenarios; `limit` is the time for all of them together, in seconds.

    `stage` says which worker they are for (`stage_of`); with a `patch`, it is one of its own, that has it. With a
    folder in `traced`, it is noted which lines of the files below it run.
    """

    limit: float
    scenarios: tuple[Scenario, ...]
    stage: str = ""
    traced: str = ""
    patch: Patch | None = None


class Observed(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """One observation for each scenario, in order; or one fault for the frame as a whole.

    `last` says that the worker is of no more use, since its device is lost: the last observation is of the scenario
    that lost it, and those that come after it in the frame are for the next worker.
    `overhead` is what the sanitizer cost. `executed` are the lines that ran, by file, where they were to be traced.
    `imported` are the modules that came with the frame, where it was traced or had a patch.
    """

    observations: tuple[Observation, ...] = ()
    fault: Fault | None = None
    last: bool = False
    overhead: Overhead = Overhead()
    executed: dict[str, tuple[int, ...]] = {}
    imported: tuple[str, ...] = ()

    def answers(self, scenarios: int) -> bool:
        """Whether this is as long as an answer to so many scenarios may be."""
        count = len(self.observations)
        return 0 < count <= scenarios if self.last else count == scenarios


def stage_of(scenario: Scenario) -> str:
    """Which worker a scenario is for: one for each server that sessions need, and one for all other scenarios."""
    if not isinstance(scenario, SessionScenario):
        return ""
    return msgspec.json.encode(scenario.server).decode()


class ProtocolError(Exception):
    """The other side is gone, or sent something that is no frame."""


class ClosedError(ProtocolError):
    """The other side closed the connection."""


class DeadlineError(Exception):
    """The other side did not answer in time."""


def write_frame(descriptor: int, payload: bytes) -> None:
    """Write one frame; raises ProtocolError where nobody reads."""
    view = memoryview(PREFIX.pack(len(payload)) + payload)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        raise ProtocolError(f"the other side does not read: {error.strerror}") from error


def read_frame(descriptor: int, limit: float | None = None) -> bytes:
    """Read one frame; raises DeadlineError after `limit` seconds, ProtocolError for an end or for garbage."""
    deadline = None if limit is None else time.monotonic() + limit
    (length,) = PREFIX.unpack(_read(descriptor, PREFIX.size, deadline))
    if length > MAX_FRAME:
        raise ProtocolError(f"a frame of {length} bytes: this is no frame")
    return _read(descriptor, length, deadline)


def _read(descriptor: int, size: int, deadline: float | None) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        if deadline is not None:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not select.select([descriptor], [], [], remaining)[0]:
                raise DeadlineError
        chunk = os.read(descriptor, min(size - len(chunks), 1 << 20))
        if not chunk:
            raise ClosedError("the other side closed the connection")
        chunks += chunk
    return bytes(chunks)
