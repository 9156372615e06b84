"""Checks where attention runs: accesses, outputs, and what never-written slots may not change."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.checks.finding import Verdict
from harness.checks.registry import CHECKS
from harness.scenario import MetadataScenario, Request
from harness.scenario.metadata import Attention
from harness.scenario.observation import BadAccess, Floats, Observation
from tests.ideal import CONTRACT_EXAMPLE, Plant, Planted, judge, raises

KV_ACCESS = CHECKS["kv-access"]
POISON = CHECKS["poison-invariance"]
OUTPUT = CHECKS["attention-output"]
RUNS = CHECKS["attention-runs"]

VERIFY = replace(CONTRACT_EXAMPLE, attention=Attention())
BLOCK = replace(VERIFY, mode="draft_block")
DRAFT = replace(VERIFY, algorithm="EAGLE", mode="draft_decode", draft_tokens=5, step=2)
DRAFT_EXTEND = replace(
    VERIFY, algorithm="EAGLE", mode="draft_extend", draft_tokens=3, rounds=((Request(5, new_tokens=2),),)
)
MLA = MetadataScenario(
    "EAGLE",
    "target_verify",
    ((Request(5), Request(20, row=2)),),
    draft_tokens=2,
    target="mla",
    attention=Attention(kv_heads=1),
)
WINDOW = replace(MLA, target="swa", window=3, attention=Attention(fia=True, sinks=True))
EXTEND = MetadataScenario("NONE", "extend", ((Request(130, new_tokens=3),),), attention=Attention(fia=True))

NEVER_WRITTEN = BadAccess(
    "never-written", "an operator reads position 21 of request 0 (row 1)", "silent wrong attention"
)


def accesses(observed: Observation) -> Observation:
    return Observation((replace(observed.seen[0], accesses=(NEVER_WRITTEN,)),))


def shifted(row: int, by: float, head: int = 1) -> Plant:
    """The fault of one output row that is off."""

    def plant(observed: Observation) -> Observation:
        assert observed.seen[0].output is not None
        values = np.array(observed.seen[0].output.values)
        values[row, head, 7] += by
        return Observation((replace(observed.seen[0], output=Floats.of(values)),))

    return plant


PLANTED = [
    Planted(
        "a slot that nobody has written is read",
        KV_ACCESS,
        VERIFY,
        accesses,
        "never-written",
        "an operator reads position 21 of request 0 (row 1)",
    ),
    Planted(
        "an output that another fill changes by one bit",
        POISON,
        VERIFY,
        shifted(17, 1e-6),
        "fill-matters",
        "output of request 1, query 1 changes with what never-written slots hold",
        place=1,
    ),
    Planted(
        "the device stops",
        RUNS,
        VERIFY,
        raises("DeviceFault: error code 507015"),
        "DeviceFault",
        "attention raised DeviceFault: error code 507015",
    ),
    Planted(
        "the first row of a verify group is off",
        OUTPUT,
        VERIFY,
        shifted(16, 0.5),
        "beyond-noise",
        "output of request 1, query 0 is off by 0.5, but should be within {limit} of float64 (1 of 32 rows)",
    ),
    Planted(
        "a row of the draft block is off",
        OUTPUT,
        BLOCK,
        shifted(3, 0.5),
        "beyond-noise",
        "output of request 0, query 3 is off by 0.5, but should be within {limit} of float64 (1 of 32 rows)",
    ),
    Planted(
        "a step of a draft is off",
        OUTPUT,
        DRAFT,
        shifted(1, 0.5),
        "beyond-noise",
        "output of request 1, query 0 is off by 0.5, but should be within {limit} of float64 (1 of 2 rows)",
    ),
    Planted(
        "a row of a draft extend that was not accepted is off",
        OUTPUT,
        DRAFT_EXTEND,
        shifted(2, 0.5),
        "beyond-noise",
        "output of request 0, query 2 is off by 0.5, but should be within {limit} of float64 (1 of 3 rows)",
    ),
    Planted(
        "a row of MLA is off",
        OUTPUT,
        MLA,
        shifted(1, 0.5),
        "beyond-noise:mla",
        "output of request 0, query 1 is off by 0.5, but should be within {limit} of float64 (1 of 4 rows)",
    ),
    Planted(
        "a row of the full layer is off",
        OUTPUT,
        WINDOW,
        shifted(1, 0.5),
        "beyond-noise:swa",
        "output of request 0, query 1 of the full layer is off by 0.5, "
        "but should be within {limit} of float64 (1 of 4 rows)",
    ),
    Planted(
        "a row of the window layer is off",
        OUTPUT,
        WINDOW,
        shifted(1, 0.5, head=3),
        "beyond-noise:swa",
        "output of request 0, query 1 of the window layer is off by 0.5, "
        "but should be within {limit} of float64 (1 of 4 rows)",
    ),
    Planted(
        "a row of a decode over a window is off",
        OUTPUT,
        replace(WINDOW, algorithm="NONE", mode="decode", draft_tokens=1),
        shifted(0, 0.5, head=3),
        "beyond-noise:swa-fia-sinks",
        "output of request 0, query 0 of the window layer is off by 0.5, "
        "but should be within {limit} of float64 (1 of 2 rows)",
    ),
    Planted(
        "a row of an extend is no number",
        OUTPUT,
        EXTEND,
        shifted(2, float("nan")),
        "beyond-noise",
        "output of request 0, query 2 is off by nan, but should be within {limit} of float64 (1 of 3 rows)",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    from harness.checks.attention import floor
    from harness.checks.noise import bound

    relation, message = fault.expected
    assert fault.reported() == (relation, message.replace("{limit}", f"{bound(floor(fault.scenario.target)):.3g}"))


@pytest.mark.parametrize("check", [POISON, OUTPUT], ids=lambda check: check.id)
def test_a_missing_output_is_unknown(check) -> None:
    outcome = judge(check, VERIFY, lambda observed: Observation((replace(observed.seen[0], output=None),)))

    assert outcome.verdict is Verdict.UNKNOWN
    assert outcome.reason == "the subject reported no output"


def test_an_access_before_a_device_fault_is_still_the_finding() -> None:
    def plant(observed: Observation) -> Observation:
        return Observation((replace(accesses(observed).seen[0], error="DeviceFault: 507015", output=None),))

    assert judge(KV_ACCESS, VERIFY, plant).verdict is Verdict.FAIL


def test_a_scenario_without_attention_is_not_judged() -> None:
    assert not any(check.applies(CONTRACT_EXAMPLE) for check in (KV_ACCESS, POISON, OUTPUT))
