"""Findings and runs made by hand, for what is shown and compared of them."""

from collections.abc import Sequence

from harness.campaign.run import Run
from harness.campaign.tally import Counts
from harness.checks.finding import Finding
from harness.scenario import GateScenario, MetadataScenario, Request
from harness.subject.frames import SubjectInfo

VERIFY = MetadataScenario("DFLASH", "target_verify", ((Request(125),),), draft_tokens=4)

BLOCK_TWICE = Finding(
    check="kv-lengths",
    fingerprint="kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again",
    algorithm="DFLASH",
    executor="eager",
    mode="target_verify",
    message="seq_lens_cpu_int[0]=133, but should be 129 [eager, DFLASH, prefix=125, block=4]",
    meaning="attention reads KV slots that nobody has written",
    scenario=VERIFY,
)

REFUSED = Finding(
    check="device-gate",
    fingerprint="device-gate:DFLASH:supported:refused",
    algorithm="DFLASH",
    executor="",
    mode="start",
    message="_handle_dflash refuses device='npu', which it should accept: 'only [cuda] is supported'",
    meaning="DFlash cannot be started on this device at all",
    scenario=GateScenario("npu"),
)


def info(
    release: str = "0.5.18",
    spec: str = "0.5.18",
    capabilities: Sequence[str] = ("DFLASH", "EAGLE"),
    device: str = "emulated",
    revision: str = "",
) -> SubjectInfo:
    """A subject of that release."""
    versions = {"python": "3.11.7", "torch": "2.13.0", "torch_npu": "emulated", "cann": "emulated"}
    return SubjectInfo("ascend", release, device, versions, tuple(capabilities), revision, spec)


def made_run(
    *findings: Finding,
    subject: SubjectInfo | None = None,
    checks: dict[str, Counts] | None = None,
    unknown: dict[str, str] | None = None,
) -> Run:
    """A run with these findings; without further words both checks ran 40 times and failed at each finding."""
    if checks is None:
        failed = [finding.check for finding in findings]
        checks = {name: Counts(ran=40, failed=failed.count(name)) for name in ("kv-lengths", "device-gate")}
    return Run(subject or info(), "dev", 7, checks, list(findings), unknown or {})
