"""States of linear attention: another request's slot, wrong query rows and another step are found."""

import pytest
from msgspec.structs import replace

from harness.checks.finding import PASSED
from harness.checks.registry import CHECKS
from harness.scenario import MetadataScenario, Request
from tests.ideal import Planted, judge, says

STATE_SLOTS = CHECKS["state-slots"]
STATE_QUERIES = CHECKS["state-queries"]
STATE_STEPS = CHECKS["state-steps"]

#: A pool of four rows: row 1 holds the state slot 4, row 2 slot 3.
VERIFY = MetadataScenario("DFLASH", "target_verify", ((Request(5), Request(130, row=2)),), target="gdn", draft_tokens=4)
#: A batch of two in a bucket of four.
REPLAY = replace(VERIFY, executor="graph", buckets=(4,))
EXTEND = replace(
    VERIFY,
    algorithm="NONE",
    mode="extend",
    draft_tokens=1,
    rounds=((Request(5, new_tokens=7), Request(0, row=2, new_tokens=3)),),
)

PLANTED = [
    Planted(
        "rows taken for slots",
        STATE_SLOTS,
        VERIFY,
        says("mamba_cache_indices", [1, 2]),
        "another-slot:gdn",
        "mamba_cache_indices[0]=1, but should be 4",
    ),
    Planted(
        "a live request taken for padding",
        STATE_SLOTS,
        REPLAY,
        says("mamba_cache_indices", [4, 0, 0, 0]),
        "another-slot:gdn",
        "mamba_cache_indices[1]=0, but should be 3",
    ),
    Planted(
        "a padded row with a slot of the batch before",
        STATE_SLOTS,
        REPLAY,
        says("mamba_cache_indices", [4, 3, -1, 2]),
        "live-slot:gdn",
        "mamba_cache_indices[3]=2, but a padded row should have slot 0 or -1",
    ),
    Planted(
        "every request with as many tokens as the first",
        STATE_QUERIES,
        EXTEND,
        says("query_start_loc", [0, 7, 14]),
        "cumulative-wrong:gdn",
        "query_start_loc=[0, 7, 14], but should begin [0, 7, 10], not fall, end by 10 and have 3 entries",
    ),
    Planted(
        "padded rows past what was captured",
        STATE_QUERIES,
        REPLAY,
        says("query_start_loc", [0, 4, 8, 12, 20]),
        "cumulative-wrong:gdn",
        "query_start_loc=[0, 4, 8, 12, 20], but should begin [0, 4, 8], not fall, end by 16 and have 5 entries",
    ),
    Planted(
        "padded rows that begin again",
        STATE_QUERIES,
        REPLAY,
        says("query_start_loc", [0, 4, 8, 0, 0]),
        "cumulative-wrong:gdn",
        "query_start_loc=[0, 4, 8, 0, 0], but should begin [0, 4, 8], not fall, end by 16 and have 5 entries",
    ),
    Planted(
        "one state for all draft tokens",
        STATE_STEPS,
        VERIFY,
        says("ssm_state_indices", [4, 4, 4, 4, 3, 3, 3, 3]),
        "another-step:gdn",
        "ssm_state_indices[0]=4, but should be 0",
    ),
    Planted(
        "the second request in the place of the first",
        STATE_STEPS,
        REPLAY,
        says("ssm_state_indices", [0, 1, 2, 3, 0, 1, 2, 3]),
        "another-step:gdn",
        "ssm_state_indices[4]=0, but should be 4",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_reported(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_padded_rows_may_have_queries_of_their_own() -> None:
    assert judge(STATE_QUERIES, REPLAY, says("query_start_loc", [0, 4, 8, 12, 16])) == PASSED


def test_padded_rows_may_be_passed_over() -> None:
    assert judge(STATE_SLOTS, REPLAY, says("mamba_cache_indices", [4, 3, -1, -1])) == PASSED
