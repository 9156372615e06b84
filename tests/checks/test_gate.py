"""The device gate: a refusal of a supported device, a missing gate and a refusal that does not help are found."""

import pytest

from harness.checks.finding import PASSED
from harness.checks.gate import SUPPORTED, UNSUPPORTED
from harness.checks.registry import CHECKS
from harness.checks.start import STARTS, TWO_RANKS, start
from harness.scenario import GateScenario
from harness.scenario.observation import Observation
from tests.ideal import CONTRACT_EXAMPLE, Plant, Planted, judge

DEVICE_GATE = CHECKS["device-gate"]


def answers(verdict: str) -> Plant:
    """The fault of answering with `verdict`."""
    return lambda observed: Observation(verdict=verdict)


def settles(name: str, value: int | str) -> Plant:
    """The fault of settling one option wrongly."""
    return lambda observed: Observation(
        verdict="accepted", settled=tuple((dict(observed.settled) | {name: value}).items())
    )


PLANTED = [
    Planted(
        "npu refused",
        DEVICE_GATE,
        GateScenario("npu"),
        answers("DFLASH only supports CUDA."),
        "refused",
        "_handle_dflash refuses device='npu', which it should accept: 'DFLASH only supports CUDA.'",
    ),
    Planted(
        "a numbered device refused",
        DEVICE_GATE,
        GateScenario("cuda:1"),
        answers("DFLASH only supports cuda and npu."),
        "refused",
        "_handle_dflash refuses device='cuda:1', which it should accept: 'DFLASH only supports cuda and npu.'",
    ),
    Planted(
        "no gate",
        DEVICE_GATE,
        GateScenario("cpu"),
        answers("accepted"),
        "no-gate",
        "_handle_dflash accepts device='cpu', which it should refuse",
    ),
    Planted(
        "no gate for no device at all",
        DEVICE_GATE,
        GateScenario(""),
        answers("accepted"),
        "no-gate",
        "_handle_dflash accepts device='', which it should refuse",
    ),
    Planted(
        "a refusal that does not help",
        DEVICE_GATE,
        GateScenario("nonsense"),
        answers("not supported"),
        "unhelpful",
        "the refusal of device='nonsense' names neither it nor a supported device: 'not supported'",
    ),
    Planted(
        "a window below the block",
        DEVICE_GATE,
        start(speculative_draft_window_size=7),
        answers("accepted"),
        "no-refusal",
        "_handle_dflash accepts a draft model of block 8, speculative_draft_window_size=7, "
        "and should refuse speculative_draft_window_size",
    ),
    Planted(
        "a window of the block refused",
        DEVICE_GATE,
        start(speculative_draft_window_size=8),
        answers("too small"),
        "refused",
        "_handle_dflash refuses a draft model of block 8, speculative_draft_window_size=8, which it should accept: "
        "'too small'",
    ),
    Planted(
        "a refusal that does not say which option",
        DEVICE_GATE,
        start(pp_size=2),
        answers("not supported"),
        "unhelpful",
        "the refusal does not name pp_size: 'not supported'",
    ),
    Planted(
        "ranks that share no head",
        DEVICE_GATE,
        start(**TWO_RANKS),
        answers("accepted"),
        "no-refusal",
        "_handle_dflash accepts a draft model of block 8, enable_dp_attention=1, dp_size=2, tp_size=2, attn_dp_size=2, "
        "and should refuse dp_attention",
    ),
    Planted(
        "ranks in both ways",
        DEVICE_GATE,
        start(**TWO_RANKS, enable_dp_lm_head=1, attn_cp_size=2),
        answers("accepted"),
        "no-refusal",
        "_handle_dflash accepts a draft model of block 8, enable_dp_attention=1, dp_size=2, tp_size=2, attn_dp_size=2, "
        "enable_dp_lm_head=1, attn_cp_size=2, and should refuse dp_attention",
    ),
    Planted(
        "ranks that are asked for what they have",
        DEVICE_GATE,
        start(**TWO_RANKS, enable_dp_lm_head=1),
        answers("dp attention requires CUDA or NPU"),
        "refused",
        "_handle_dflash refuses a draft model of block 8, enable_dp_attention=1, dp_size=2, tp_size=2, attn_dp_size=2, "
        "enable_dp_lm_head=1, which it should accept: 'dp attention requires CUDA or NPU'",
    ),
    Planted(
        "a block that is not the draft model's",
        DEVICE_GATE,
        start(),
        settles("speculative_num_draft_tokens", 16),
        "speculative_num_draft_tokens",
        "speculative_num_draft_tokens=16, but should be 8 of a draft model of block 8",
    ),
    Planted(
        "as many steps as were asked for",
        DEVICE_GATE,
        start(speculative_num_steps=2, speculative_eagle_topk=2),
        settles("speculative_num_steps", 2),
        "speculative_num_steps",
        "speculative_num_steps=2, but should be 1 of a draft model of block 8, speculative_num_steps=2, "
        "speculative_eagle_topk=2",
    ),
    Planted(
        "another backend for the draft",
        DEVICE_GATE,
        start(attention_backend="ascend"),
        settles("speculative_draft_attention_backend", "flashinfer"),
        "speculative_draft_attention_backend",
        "speculative_draft_attention_backend=flashinfer, but should be ascend of a draft model of block 8, "
        "attention_backend=ascend",
    ),
]


@pytest.mark.parametrize("fault", PLANTED, ids=str)
def test_a_planted_fault_is_found_and_named(fault: Planted) -> None:
    assert fault.expected == fault.reported()


@pytest.mark.parametrize("device", [*SUPPORTED, *UNSUPPORTED])
def test_a_gate_that_knows_its_devices_passes(device: str) -> None:
    assert judge(DEVICE_GATE, GateScenario(device)) == PASSED


@pytest.mark.parametrize("scenario", STARTS, ids=str)
def test_a_start_that_settles_its_options_passes(scenario: GateScenario) -> None:
    assert judge(DEVICE_GATE, scenario) == PASSED


def test_a_release_without_attention_in_parallel_over_data_says_so_and_passes() -> None:
    verdict = "Currently DFLASH speculative decoding does not support dp attention."

    assert judge(DEVICE_GATE, start(**TWO_RANKS, enable_dp_lm_head=1), answers(verdict)) == PASSED


@pytest.mark.parametrize("verdict", ["DFLASH only supports CUDA.", "use npu", "device 'cpu' is not supported"])
def test_a_refusal_helps_by_a_supported_device_or_the_one_asked_for(verdict: str) -> None:
    assert judge(DEVICE_GATE, GateScenario("cpu"), answers(verdict)) == PASSED


def test_a_finding_says_what_a_user_would_see() -> None:
    (found,) = judge(DEVICE_GATE, GateScenario("npu"), answers("no")).findings

    assert "cannot be started" in found.meaning
    assert found.fingerprint == "device-gate:DFLASH:supported:refused"


def test_devices_of_no_known_standing_are_not_judged() -> None:
    assert not DEVICE_GATE.applies(GateScenario("xpu"))
    assert not DEVICE_GATE.applies(CONTRACT_EXAMPLE)
