"""Lifting the one gate that keeps a release from starting DFlash on an NPU, to see what it would have done there."""

from typing import Any

from harness.scenario import GateScenario
from harness.subject.ascend import gate


class _Welcome(str):
    """A device name that a gate for CUDA lets through; everywhere else it is itself."""

    def startswith(self, *args: Any) -> bool:
        """Yes, whatever is asked."""
        return True


def lift() -> None:
    """Have `_handle_dflash` take the device for a CUDA device, where it refuses an NPU (0.5.16)."""
    from sglang.srt.arg_groups import speculative_hook

    if gate.ask(GateScenario("npu")).verdict == "accepted":
        return
    handle = speculative_hook._handle_dflash

    def welcoming(server_args: Any) -> None:
        device = server_args.device
        server_args.device = _Welcome(device)
        try:
            handle(server_args)
        finally:
            server_args.device = device

    speculative_hook._handle_dflash = welcoming
