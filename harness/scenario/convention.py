"""The producer-consumer convention, as data: who publishes which lengths, per algorithm and mode.

Sources: docs/contract.md; `dflash_worker_v2.py`, `dspark_components`, `eagle_worker_v2.py`, `eagle_worker_common.py`
and `ngram_worker.py` of 0.5.15 to 0.5.23. DFlash2 is a draft model under DFLASH and publishes as DFLASH does.
The driver feeds a backend by this table, and the worker subject will hold the producers to it.
"""

from typing import Literal, NamedTuple

from harness.scenario.metadata import Algorithm, MetadataScenario, Request

Added = Literal["nothing", "block", "new_tokens", "one"]


class Published(NamedTuple):
    """What a producer adds to the committed prefix on the device and on the host."""

    device: Added
    host: Added


#: The algorithms whose workers publish the block with the host lengths (sglang's `is_dflash_family()`).
DFLASH_FAMILY = ("DFLASH", "DSPARK")

#: Algorithms that reach the same worker and backend code as another one.
FAMILY: dict[Algorithm, Algorithm] = {"EAGLE3": "EAGLE", "STANDALONE": "EAGLE", "NGRAM": "EAGLE"}

CONVENTION: dict[tuple[bool, str], Published] = {
    # (DFlash family?, mode)
    (False, "extend"): Published("new_tokens", "new_tokens"),
    (False, "decode"): Published("one", "one"),
    (False, "target_verify"): Published("nothing", "nothing"),
    (True, "target_verify"): Published("nothing", "block"),
    (True, "draft_block"): Published("nothing", "block"),
    (False, "draft_decode"): Published("nothing", "nothing"),
    (False, "draft_extend"): Published("block", "block"),
}


def convention(scenario: MetadataScenario) -> Published:
    """The row of `CONVENTION` that applies to `scenario`."""
    return CONVENTION[scenario.algorithm in DFLASH_FAMILY, scenario.mode]


def device_length(scenario: MetadataScenario, request: Request) -> int:
    """What the device tensor `seq_lens` holds for `request` when attention metadata is built."""
    return request.prefix + _amount(convention(scenario).device, scenario, request)


def host_length(scenario: MetadataScenario, request: Request) -> int:
    """What the host tensor `seq_lens_cpu` holds for `request`: the convention, the lag, or the reserved bound.

    A reserved bound is what the DFlash worker publishes when no host lengths exist: two blocks beyond the prefix, and
    those pages whole (`nxt_kv_lens_cpu`; reached in 0.5.23 with SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS=0).
    """
    if scenario.host_view == "bound":
        page = scenario.pool.page_size
        reserved = request.prefix + 2 * scenario.draft_tokens
        return min(-(-reserved // page) * page, scenario.capacity)
    return request.prefix + request.host_lag + _amount(convention(scenario).host, scenario, request)


def _amount(added: Added, scenario: MetadataScenario, request: Request) -> int:
    amounts = {"nothing": 0, "one": 1, "block": scenario.draft_tokens, "new_tokens": request.new_tokens}
    return amounts[added]
