"""Raising, writing to inputs and answering differently the second time are found."""

import pytest
from msgspec.structs import replace

from harness.checks.finding import NOT_RUN, PASSED
from harness.checks.inputs import shown
from harness.checks.registry import CHECKS
from harness.scenario import Request
from harness.scenario.observation import Array, Changed, Observation, Seen
from tests.ideal import CONTRACT_EXAMPLE, Plant, Planted, judge, raises, says

BUILDS = CHECKS["builds"]
INPUTS_UNCHANGED = CHECKS["inputs-unchanged"]
IDEMPOTENT = CHECKS["idempotent"]

ROUNDS = replace(CONTRACT_EXAMPLE, rounds=((Request(5),), (Request(130, row=2),)))


def writes(*changed: Changed, build: int = 0) -> Plant:
    """The fault of writing to input tensors."""

    def plant(observed: Observation) -> Observation:
        seen = list(observed.seen)
        seen[build] = replace(seen[build], changed=changed)
        return Observation(tuple(seen))

    return plant


def forgets(name: str, build: int) -> Plant:
    """The fault of not reporting `name` in one build."""

    def plant(observed: Observation) -> Observation:
        seen = list(observed.seen)
        seen[build] = Seen({field: values for field, values in seen[build].fields.items() if field != name})
        return Observation(tuple(seen))

    return plant


PLANTED = [
    Planted(
        "an exception",
        BUILDS,
        CONTRACT_EXAMPLE,
        raises("IndexError: index 4 is out of bounds"),
        "IndexError",
        "the backend raised IndexError: index 4 is out of bounds",
    ),
    Planted(
        "an exception in a later round",
        BUILDS,
        ROUNDS,
        raises("RuntimeError: shape mismatch", build=1),
        "RuntimeError",
        "the backend raised RuntimeError: shape mismatch",
    ),
    Planted(
        "a written int32 host tensor",
        INPUTS_UNCHANGED,
        replace(CONTRACT_EXAMPLE, host_dtype="int32"),
        writes(Changed("seq_lens_cpu", "int32", (21, 146), (37, 162))),
        "written-int32",
        "seq_lens_cpu[0]=37 after the call, but was 21 before it (int32)",
    ),
    Planted(
        "a written device tensor",
        INPUTS_UNCHANGED,
        CONTRACT_EXAMPLE,
        writes(Changed("seq_lens", "int64", (5, 130), (5, 146))),
        "written-int64",
        "seq_lens[1]=146 after the call, but was 130 before it (int64)",
    ),
    Planted(
        "an input written in a later round",
        INPUTS_UNCHANGED,
        ROUNDS,
        writes(Changed("req_pool_indices", "int64", (2,), (0,)), build=1),
        "written-int64",
        "req_pool_indices[0]=0 after the call, but was 2 before it (int64)",
    ),
    Planted(
        "another answer on the second build",
        IDEMPOTENT,
        CONTRACT_EXAMPLE,
        says("seq_lens_cpu_int", [37, 162], build=1),
        "second-build-differs",
        "on the second build of the same batch seq_lens_cpu_int is [37, 162], but was [21, 146]",
        place=1,
    ),
    Planted(
        "another table on the second build",
        IDEMPOTENT,
        CONTRACT_EXAMPLE,
        says("block_tables", [[0], [0]], build=1),
        "second-build-differs",
        "on the second build of the same batch block_tables is [[0], [0]], but was [[1, 0], [11, 12]]",
        place=1,
    ),
    Planted(
        "a field that the second build lacks",
        IDEMPOTENT,
        CONTRACT_EXAMPLE,
        forgets("seq_lens", build=1),
        "second-build-differs",
        "on the second build of the same batch seq_lens is absent, but was [5, 130]",
        place=1,
    ),
    Planted(
        "another answer on the second build of a later round",
        IDEMPOTENT,
        ROUNDS,
        says("seq_lens_cpu_int", [162], build=3),
        "second-build-differs",
        "on the second build of the same batch seq_lens_cpu_int is [162], but was [146]",
        place=1,
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


def test_the_round_that_raised_is_named() -> None:
    (found,) = judge(BUILDS, ROUNDS, raises("RuntimeError: shape mismatch", build=1)).findings

    assert found.message.endswith(" [eager, DFLASH, target_verify, block=16, page=128, round=1]")


def test_the_round_that_raised_is_named_however_often_each_is_built() -> None:
    (found,) = judge(BUILDS, replace(ROUNDS, builds=2), raises("RuntimeError: shape mismatch", build=3)).findings

    assert "round=1" in found.message


@pytest.mark.parametrize("build", [0, 1])
def test_nothing_is_compared_where_one_of_the_two_builds_raised(build: int) -> None:
    assert judge(IDEMPOTENT, CONTRACT_EXAMPLE, raises("RuntimeError: no", build), place=1) == NOT_RUN


def test_rounds_may_differ_from_each_other() -> None:
    assert judge(IDEMPOTENT, ROUNDS) == PASSED


def test_a_scenario_with_builds_of_its_own_is_built_twice_all_the_same() -> None:
    assert judge(IDEMPOTENT, replace(ROUNDS, builds=3)) == PASSED


def test_a_long_array_is_cut_in_a_message_and_its_shape_is_told() -> None:
    words = shown(Array.of([[1] * 100] * 2))

    assert words.endswith("… of shape [2, 100]")
    assert len(words) < 150
