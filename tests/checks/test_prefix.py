"""MLA extend over a cached prefix: lengths and pages that are not those of the prefix are found."""

import pytest
from msgspec.structs import replace

from harness.checks.finding import PASSED
from harness.checks.registry import CHECKS
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.observation import Array, Observation, Seen
from tests.ideal import Planted, judge, says

MLA_PREFIX = CHECKS["mla-prefix"]

#: Row 1 has the pages 1 to 4, row 2 has 5 to 8, row 3 has 9 to 12; the second request has no prefix.
EXTEND = MetadataScenario(
    "NONE",
    "extend",
    ((Request(17, new_tokens=2), Request(0, row=2, new_tokens=2), Request(16, row=3, new_tokens=2)),),
    target="mla",
    pool=Pool(page_size=16, context_length=32),
)

PLANTED = [
    Planted(
        "prefix pages of another request",
        MLA_PREFIX,
        EXTEND,
        says("flatten_prefix_block_tables", [1, 2, 5]),
        "prefix-wrong",
        "flatten_prefix_block_tables=[1, 2, 5], but should be [1, 2, 9]",
    ),
    Planted(
        "prefix pages in another order",
        MLA_PREFIX,
        EXTEND,
        says("flatten_prefix_block_tables", [9, 1, 2]),
        "prefix-wrong",
        "flatten_prefix_block_tables=[9, 1, 2], but should be [1, 2, 9]",
    ),
    Planted(
        "a prefix page missing",
        MLA_PREFIX,
        EXTEND,
        says("flatten_prefix_block_tables", [1, 9]),
        "prefix-wrong",
        "flatten_prefix_block_tables=[1, 9], but should be [1, 2, 9]",
    ),
    Planted(
        "tables with their padding",
        MLA_PREFIX,
        EXTEND,
        says("flatten_prefix_block_tables", [1, 2, 5, 0, 9, 0]),
        "prefix-wrong",
        "flatten_prefix_block_tables=[1, 2, 5, 0, 9, 0], but should be [1, 2, 9]",
    ),
    Planted(
        "the new tokens counted as prefix",
        MLA_PREFIX,
        EXTEND,
        says("prefix_lens", [19, 2, 18]),
        "prefix-wrong",
        "prefix_lens=[19, 2, 18], but should be [17, 0, 16]",
    ),
    Planted(
        "requests without a prefix left out",
        MLA_PREFIX,
        EXTEND,
        says("prefix_lens", [17, 16]),
        "prefix-wrong",
        "prefix_lens=[17, 16], but should be [17, 0, 16]",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_a_batch_without_any_prefix_needs_none_of_the_two_fields() -> None:
    fresh = replace(EXTEND, rounds=((Request(0, new_tokens=2),),))

    assert judge(MLA_PREFIX, fresh, lambda observed: Observation((Seen({"block_tables": Array.of([[1]])}),))) == PASSED


@pytest.mark.parametrize(
    "scenario",
    [replace(EXTEND, target="mha"), MetadataScenario("NONE", "decode", ((Request(17),),), target="mla")],
    ids=["mha", "decode"],
)
def test_only_an_mla_extend_gathers_prefix_pages(scenario: MetadataScenario) -> None:
    assert not MLA_PREFIX.applies(scenario)
