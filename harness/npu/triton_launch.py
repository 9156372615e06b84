"""Launches of Triton kernels, which Triton's interpreter runs over host memory.

The interpreter copies whole storages to the host and back; here a kernel gets views of the device's memory instead, so
that a launch is work of a stream like any other.
"""

import importlib.util
from typing import Any

from harness.npu import fault
from harness.npu.dispatch import Views, deferring, submit


def activate() -> None:
    """Have the interpreter's launches go through streams and captured graphs; without Triton there are none."""
    if importlib.util.find_spec("triton") is None:
        return
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def submitted(self: Any, *args: Any, **kwargs: Any) -> None:
        name = getattr(self.fn, "__name__", "Triton kernel")
        views = Views(name)
        given = [views.of(value) for value in args]
        named = {key: views.of(value) for key, value in kwargs.items()}
        if not views.pairs:
            launch(self, *args, **kwargs)
            return
        fault.refuse_after_fault(name)
        views.refuse_mixture()
        if deferring():
            submit(lambda: launch(self, *given, **named))
        else:
            launch(self, *given, **named)

    GridExecutor.__call__ = submitted
