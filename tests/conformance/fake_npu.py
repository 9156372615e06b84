"""An NPU that is none: the emulated device in the place of the real one, with deviations planted when asked for.

Run as `python fake_npu.py DEVIATIONS npu FOLDER NAME...`, with deviations by name and separated by commas.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from harness.npu import install

COMMAND = (sys.executable, str(Path(__file__).resolve()))


def _sees_one_more() -> None:
    from harness.npu import paged_attention

    right = paged_attention.visible_in_band
    paged_attention.visible_in_band = lambda queries, positions, offset: right(queries, positions, offset + 1)


def _takes_masks() -> None:
    from harness.npu.arguments import Arguments

    right = Arguments.require

    def require(self: Arguments, holds: bool, argument: str, value: Any, rule: str) -> None:
        right(self, holds or rule.startswith("TND has no mask"), argument, value, rule)

    Arguments.require = require


def _refuses_sinks() -> None:
    from harness.npu.fused_call import FusedCall

    right = FusedCall.compute

    def compute(self: FusedCall) -> Any:
        if self.sink is not None and self.query.layout == "BSND":
            raise RuntimeError("the tiling of this device knows sinks in TND alone")
        return right(self)

    FusedCall.compute = compute


def _reads_lists_late() -> None:
    from harness.npu import graph

    graph.deepcopy = lambda value: value


def _recovers() -> None:
    from harness.npu import fault

    fault.refuse_after_fault = lambda operator: None


def _is_lost_by_windows() -> None:
    from harness.npu import fault
    from harness.npu.fused_call import FusedCall

    right = FusedCall.compute

    def compute(self: FusedCall) -> Any:
        if self.masking.sparse_mode == 4 and self.sink is None:
            fault.fail("npu_fused_infer_attention_score_v2", "a window")
        return right(self)

    FusedCall.compute = compute


def _dies_of_bfloat16() -> None:
    import os

    import torch

    from harness.npu.fused_call import FusedCall

    right = FusedCall.compute

    def compute(self: FusedCall) -> Any:
        if self.tensors["query"].dtype == torch.bfloat16 and self.query.layout == "TND":
            os.abort()
        return right(self)

    FusedCall.compute = compute


def _follows_chains_alone() -> None:
    import torch

    from harness.npu.registry import lookup

    operator = lookup("sgl_kernel_npu.sample.verify_tree_greedy.verify_tree_greedy")
    right = operator._compute

    def verify(retrive_next_sibling: torch.Tensor, **given: Any) -> None:
        right(retrive_next_sibling=torch.full_like(retrive_next_sibling, -1), **given)

    operator._compute = verify


DEVIATIONS: dict[str, Callable[[], None]] = {
    "sees-one-more": _sees_one_more,
    "takes-masks": _takes_masks,
    "refuses-sinks": _refuses_sinks,
    "reads-lists-late": _reads_lists_late,
    "recovers": _recovers,
    "is-lost-by-windows": _is_lost_by_windows,
    "dies-of-bfloat16": _dies_of_bfloat16,
    "follows-chains-alone": _follows_chains_alone,
}


def main() -> None:
    """Be a device, and answer."""
    install()
    for name in filter(None, sys.argv.pop(1).split(",")):
        DEVIATIONS[name]()
    from harness.conformance import __main__ as process

    process.main()


if __name__ == "__main__":
    main()
