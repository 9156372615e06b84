"""The gate of `_handle_dflash`: what is supported passes, else it is refused with a sentence that helps."""

import re
from collections.abc import Sequence

from harness.checks.check import Check, MissingField
from harness.checks.finding import Finding, Outcome, failed
from harness.checks.start import STARTS, differences
from harness.scenario import GateScenario, Scenario
from harness.scenario.observation import Observation

#: Devices that DFlash runs on (sglang #31739 for NPU) and names that no release may let through.
SUPPORTED = ("cuda", "cuda:1", "npu")
UNSUPPORTED = ("cpu", "nonsense", "")
#: Every start that a run asks for.
GATES = (*(GateScenario(device) for device in (*SUPPORTED, *UNSUPPORTED)), *STARTS)
#: A refusal helps when it names a device that is supported; the device that was asked for will do as well.
SUPPORTED_WORD = re.compile(r"\b(cuda|npu)\b", re.IGNORECASE)


def _device_gate(scenario: Scenario, observations: Sequence[Observation]) -> Outcome:
    assert isinstance(scenario, GateScenario)
    verdict = observations[0].verdict
    if not verdict:
        raise MissingField("the subject said neither that the device is accepted nor why not")
    if scenario.draft is not None:
        meaning = "the server starts with options that contradict one another, or does not start with right ones"
        wrong = differences(scenario, observations[0])
        return failed(*(_finding(scenario, relation, message, meaning) for relation, message in wrong))
    accepted = verdict == "accepted"
    if scenario.device in SUPPORTED and not accepted:
        message = f"_handle_dflash refuses device={scenario.device!r}, which it should accept: {verdict!r}"
        return failed(_finding(scenario, "refused", message, "DFlash cannot be started on this device at all"))
    if scenario.device in UNSUPPORTED and accepted:
        message = f"_handle_dflash accepts device={scenario.device!r}, which it should refuse"
        meaning = "DFlash starts on a device that it was never adapted to, and fails later or computes wrongly"
        return failed(_finding(scenario, "no-gate", message, meaning))
    asked = repr(scenario.device) in verdict or (scenario.device and scenario.device in verdict)
    helpful = asked or SUPPORTED_WORD.search(verdict)
    if not accepted and not helpful:
        message = f"the refusal of device={scenario.device!r} names neither it nor a supported device: {verdict!r}"
        return failed(_finding(scenario, "unhelpful", message, "the user is not told what to change"))
    return failed()


def _finding(scenario: GateScenario, relation: str, message: str, meaning: str) -> Finding:
    kind = "supported" if scenario.device in SUPPORTED else "unsupported"
    kind = kind if scenario.draft is None else "options"
    fingerprint = f"device-gate:{scenario.algorithm}:{kind}:{relation}"
    return Finding("device-gate", fingerprint, scenario.algorithm, "", "start", message, meaning, scenario)


CHECKS = (
    Check(
        "device-gate",
        "guard",
        "DFlash starts on cuda, cuda:N and npu, settles what fits, and refuses the rest with a sentence that helps.",
        lambda scenario: isinstance(scenario, GateScenario) and scenario.device in (*SUPPORTED, *UNSUPPORTED),
        _device_gate,
    ),
)
