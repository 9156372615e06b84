"""NPU graphs: enough to import and construct graph runners. Capturing and replaying work is not emulated."""

from types import TracebackType
from typing import Any, NoReturn, Self


class NPUGraph:
    """A captured sequence of device work; this one stays empty, and says so when it is used."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def replay(self) -> NoReturn:
        """Refuse: nothing was recorded."""
        raise NotImplementedError("torch.npu.NPUGraph.replay is not emulated: capture records no operators.")

    def update(self, cpu_update_input: Any = None) -> NoReturn:
        """Refuse: there is no recorded operator whose arguments could be rebound."""
        raise NotImplementedError("torch.npu.NPUGraph.update is not emulated: capture records no operators.")

    def pool(self) -> tuple[int, int]:
        """The memory pool of the graph: there is one."""
        return graph_pool_handle()

    def reset(self) -> None:
        """Forget the captured work, of which there is none."""


class graph:  # noqa: N801 - the name is torch_npu's
    """Captures the work of its body into an `NPUGraph`.

    Assumption: on the device, the body's Python runs once during capture, as it does here.
    """

    def __init__(self, npu_graph: NPUGraph, *args: Any, **kwargs: Any) -> None:
        self.npu_graph = npu_graph

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


def graph_pool_handle() -> tuple[int, int]:
    """A handle that makes graphs share memory; the CPU allocator has no pools."""
    return (0, 0)
