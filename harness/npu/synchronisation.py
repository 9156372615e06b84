"""How often, and where, the host waits for the device to read something from it."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

_OWN = os.path.dirname(__file__)
_TORCH = os.path.dirname(torch.__file__)


class Synchronisation(NamedTuple):
    """One reason to wait, such as ``aten::_local_scalar_dense``, at one line of the code that asked for it."""

    reason: str
    site: str


_counters: list[Counter[Synchronisation]] = []


@contextmanager
def counting() -> Iterator[Counter[Synchronisation]]:
    """Count the synchronisations of this process by reason and call site, until the context ends."""
    counter: Counter[Synchronisation] = Counter()
    _counters.append(counter)
    try:
        yield counter
    finally:
        _counters[:] = [other for other in _counters if other is not counter]


def count(reason: str) -> None:
    """Note that the host waits for the device here and now."""
    if _counters:
        noted = Synchronisation(reason, _call_site())
        for counter in _counters:
            counter[noted] += 1


def _call_site() -> str:
    """File and line of the innermost frame that is neither torch's nor the emulation's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OWN, _TORCH)):
        frame = frame.f_back
    path = frame.f_code.co_filename
    return f"{os.path.basename(os.path.dirname(path))}/{os.path.basename(path)}:{frame.f_lineno}"
