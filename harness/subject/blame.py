"""Whose an error is: what sglang raises is an observation, what the harness lacks is a gap of its own."""

import os
import traceback
from types import SimpleNamespace

import harness

#: Where the harness itself lies, to tell its frames from those of sglang.
HARNESS = os.path.dirname(harness.__file__) + os.sep
EMULATED_DEVICES = tuple(os.path.join(HARNESS, name, "") for name in ("npu", "gpu"))
_SGLANG = f"{os.sep}sglang{os.sep}"
#: The runtime's number for an address out of range; after it every call of the process fails.
DEVICE_LOST = "507015"


class StandIn(SimpleNamespace):
    """An object of the harness where sglang expects one of its own."""


class ModelError(RuntimeError):
    """What a model would raise, where a driver stands in for the one that goes on with what sglang has made."""


def is_gap(error: Exception) -> bool:
    """Whether `error` says that a stand-in lacks an attribute; marked objects of sglang count, too (`stands_in`)."""
    owner = getattr(error, "obj", None)
    return isinstance(error, AttributeError) and (isinstance(owner, StandIn) or hasattr(owner, "stands_in"))


def sglang_error(error: Exception) -> str:
    """What sglang raised, as an observation; an error of the driver's own making is raised again instead.

    It is the driver's where a stand-in lacks something, where something is not emulated (which sglang says itself where
    it has no code for what was asked, and that is its word), or where the innermost of the two on the stack is the
    harness. The emulated device is neither: what it refuses, sglang has asked for, also where the driver is the next to
    use a device that is lost; nor is a model that the driver stands in for. Memory that runs out is nobody's: the
    worker ends by it, and the scenario is asked again.
    """
    if out_of_memory(error):
        raise error
    lines = str(error).strip().splitlines()
    message = f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
    if DEVICE_LOST in message or isinstance(error, ModelError):
        return message
    owners = ("harness" if frame.filename.startswith(HARNESS) else "sglang" for frame in _own_frames(error))
    if is_gap(error) or _is_not_emulated(error) or next(owners, "harness") == "harness":
        raise error
    return message


def _is_not_emulated(error: Exception) -> bool:
    """Whether the device, or torch for it, lacks an operation: none that a `raise` in sglang's own code says."""
    raised = traceback.extract_tb(error.__traceback__)[-1:]
    own = any(_SGLANG in frame.filename and (frame.line or "").startswith("raise") for frame in raised)
    return isinstance(error, NotImplementedError) and not own


def out_of_memory(error: Exception) -> bool:
    """Whether the host has no memory left (Python and torch say so in different ways), or the device."""
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def where(error: BaseException) -> str:
    """The file and line that raised `error`."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{os.path.basename(last.filename)}:{last.lineno}"


def _own_frames(error: Exception) -> list[traceback.FrameSummary]:
    """The frames of sglang and of the harness, innermost first; those of torch and of the device are left out."""
    frames = traceback.extract_tb(error.__traceback__)[::-1]
    marks = (HARNESS, _SGLANG)
    return [
        frame
        for frame in frames
        if any(mark in frame.filename for mark in marks) and not frame.filename.startswith(EMULATED_DEVICES)
    ]
