"""Addresses out of range: what stops the device, and that nothing in the process can use it afterwards.

Each of these cases costs its process the device.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from harness.conformance.attention import DECODE, DECODING, FUSED, VERIFY
from harness.conformance.calls import Arguments
from harness.conformance.case import Case, Rule, Values
from harness.conformance.device import Device, Host
from harness.conformance.layers import MROPE, rotation
from harness.conformance.writes import LOOK_UP, RESHAPE, SCATTER, SCATTER_PAGES, STORED, looking_up

#: The runtime's number for an address out of range.
LOST = "507015"
#: An index that no memory behind a small table reaches.
FAR = 1 << 30

TABLE = Rule("paged_cache.py", "Assumption: tiling accepts a length beyond the table")
PAGE = Rule("paged_cache.py", "outside = needed[(needed < 0) | (needed >= pages)]")
SLOT = Rule("cache_writes.py", "Assumption: an index outside the cache stops the device")
ROW = Rule("kernels.py", "Assumption: what lies outside either table stops the device")
ANGLES = Rule("rotary.py", "Assumption: the device checks no positions before it reads their angles")
AFTER = Rule("fault.py", "Assumption: after a fault every operator fails")


def told(device: Device, work: Callable[[], object]) -> str:
    """What the device says to `work` and to waiting for it: the number of its error, or how it went."""
    try:
        work()
        device.synchronize()
    except Exception as error:
        return LOST if LOST in str(error) else f"{type(error).__name__} without {LOST}"
    return "no error"


def fault(operator: str, wrong: Callable[[], Arguments]) -> Callable[[Device], Values]:
    """Call `operator` with an address out of range; then use the device otherwise."""

    def run(device: Device) -> Values:
        other, given = torch.ones(2, device="npu"), device.placed(wrong())
        right = device.placed(DECODE.padded())
        return {
            "the call": told(device, lambda: device.operator(operator)(**given)),
            "the same operator, rightly called": told(device, lambda: device.operator(FUSED)(**right)),
            "an addition of other tensors": told(device, lambda: other + 1),
            "a copy to the host": told(device, other.cpu),
        }

    return run


def wrong_page(page: int) -> Arguments:
    """The first page of the second request is `page`."""
    table = VERIFY.table.clone()
    table[1, 0] = page
    return VERIFY.fused(block_table=table)


def too_narrow() -> Arguments:
    """The second request has 130 positions, and the table one page of 128."""
    return VERIFY.fused(block_table=VERIFY.table[:, :1].contiguous())


def too_narrow_for_atb() -> Mapping[str, Any]:
    """One position more than the table's pages hold."""
    lengths = Host(torch.tensor([1, 129, 77], dtype=torch.int32))
    return DECODE.single(context_lens=lengths, block_table=DECODE.table[:, :1].contiguous())


def wrong_slot(operator: str, slot: int) -> Arguments:
    """One slot of three is `slot`."""
    return STORED._replace(slots=torch.tensor([1, slot, 2], dtype=torch.int32)).arguments(operator)


def wrong_row() -> Arguments:
    """The slots of one request of two are in no row of the table."""
    return {**looking_up(), "req_indices": torch.tensor([2, FAR])}


def wrong_position() -> Arguments:
    """One token of three stands where there are no angles."""
    return {**rotation(), "positions": torch.tensor([5, FAR, 3])}


def _case(name: str, operator: str, rule: Rule, wrong: Callable[[], Arguments]) -> Case:
    steps = ("the call", "the same operator, rightly called", "an addition of other tensors", "a copy to the host")
    return Case(f"fault: {name}", (operator,), rule, fault(operator, wrong), lambda: dict.fromkeys(steps, LOST), True)


CASES: tuple[Case, ...] = (
    _case("a table too narrow stops the device", FUSED, TABLE, too_narrow),
    _case("a table too narrow stops ATB's attention", DECODING, TABLE, too_narrow_for_atb),
    _case("a page beyond the cache stops the device, and every later call fails", FUSED, AFTER,
          partial(wrong_page, 100_000)),
    _case("a page below 0 stops the device", FUSED, PAGE, partial(wrong_page, -1)),
    *(
        _case(f"{operator.removeprefix('npu.')} to slot {slot} stops the device", operator, SLOT,
              partial(wrong_slot, operator, slot))
        for operator, slot in ((RESHAPE, -1), (SCATTER_PAGES, 64), (SCATTER, 64))
    ),
    _case("slots of a row beyond the table stop the device", LOOK_UP, ROW, wrong_row),
    _case("a position without angles stops the device", MROPE, ANGLES, wrong_position),
)  # fmt: skip
