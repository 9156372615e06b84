"""What the options that commands share ask for."""

import shlex
from collections.abc import Sequence

from harness.campaign.profile import profile_named
from harness.campaign.run import Plan, Run
from harness.checks.registry import checks_of
from harness.doctor import has_npu
from harness.errors import CannotJudge, Exit, UsageError
from harness.report.progress import Bars
from harness.report.replay import unanswered_sentence
from harness.scenario.pinned import pinned_cases
from harness.subject.pending import unanswered

DEVICES = ("emulated", "npu")


def planned(groups: Sequence[str], profile: str, seed: int | None, device: str, fresh: bool) -> Plan:
    checks_of(groups)
    require_device(device)
    pinned = () if fresh else tuple(pinned_cases().values())
    return Plan(tuple(groups), profile_named(profile), seed, device, pinned)


def through_words(through: str | None) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(through or ""))
    except ValueError as error:
        raise UsageError(f"--through {through!r} is no command: {error}.") from error


def require_device(device: str) -> None:
    if device not in DEVICES:
        raise UsageError(f"there is no device {device!r}: the devices are {', '.join(DEVICES)}.")
    if device == "npu" and not has_npu():
        raise CannotJudge("no NPU can be used here: `harness doctor` says what is missing.")


def mention_unanswered(bars: Bars) -> None:
    """Tell of every scenario whose harness ended before its answer came."""
    for left in unanswered():
        bars.note(unanswered_sentence(left))


def combined(runs: Sequence[Run]) -> Exit:
    """The status of several runs: a finding anywhere, else anything that could not be judged."""
    statuses = [run.exit_status for run in runs]
    return next((status for status in (Exit.FINDINGS, Exit.UNKNOWN) if status in statuses), Exit.PASSED)
