"""Does one case reproduce? Good, bad or unknown: this fingerprint is meant, and not that something failed."""

from collections.abc import Collection
from typing import Literal

import msgspec

from harness.campaign.trial import Observe, Trial
from harness.checks.check import Check
from harness.checks.finding import Outcome
from harness.checks.finding import Verdict as CheckVerdict
from harness.checks.registry import CHECKS
from harness.errors import NoSubject, UsageError
from harness.scenario.capability import missing
from harness.scenario.case import Case
from harness.scenario.observation import Observation

Answer = Literal["good", "bad", "unknown"]


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one run of a case showed.

    `message` has the actual and the expected value where it is bad, `values` what the field of the fingerprint held,
    `reason` says why it is unknown, and `others` are the fingerprints of other checks' findings on the same
    observation, which do not count.
    """

    answer: Answer
    message: str = ""
    values: str = ""
    reason: str = ""
    others: tuple[str, ...] = ()


def check_of(case: Case) -> Check:
    """The check that judges `case`; raises UsageError where it names none that can."""
    name = case.check or case.fingerprint.split(":")[0]
    if not name:
        raise UsageError("the case names neither a check nor a fingerprint: there is nothing to look for.")
    if name not in CHECKS:
        raise UsageError(f"the case names the check {name!r}, which this harness does not have.")
    if not CHECKS[name].applies(case.scenario):
        raise UsageError(f"the check {name} says nothing about the scenario of the case.")
    return CHECKS[name]


def run_case(case: Case, observe: Observe, capabilities: Collection[str]) -> Shown:
    """Run `case` once and say whether it shows its fingerprint; a sentinel is bad with any finding of its check.

    Unknown is what cannot be judged: an sglang without the algorithm, a driver that cannot drive it, a lost subject,
    and another finding of the same check, which reports the first thing that it finds.
    """
    check = check_of(case)
    if lacking := missing(case.scenario, capabilities):
        return Shown("unknown", reason=f"this sglang has no {', '.join(sorted(lacking))}")
    needed = Trial.needed(check, case.scenario)
    try:
        observations = observe(needed)
    except NoSubject as error:
        return Shown("unknown", reason=str(error))
    outcome = check.outcome(case.scenario, observations)
    if outcome.verdict is CheckVerdict.UNKNOWN:
        return Shown("unknown", reason=outcome.reason)
    if outcome.verdict is CheckVerdict.NOT_RUN:
        return Shown("unknown", reason=f"the check {check.id} had nothing to judge")
    others = tuple(
        finding.fingerprint
        for other in CHECKS.values()
        if other.group == check.group and other is not check and other.applies(case.scenario)
        if Trial.needed(other, case.scenario) == [case.scenario]
        for finding in other.outcome(case.scenario, observations[:1]).findings
    )
    return msgspec.structs.replace(_judged(case, outcome), others=others, values=_values(case, observations[0]))


def _judged(case: Case, outcome: Outcome) -> Shown:
    if not outcome.findings:
        return Shown("good")
    if case.shows_in({finding.fingerprint for finding in outcome.findings}):
        own = [one for one in outcome.findings if one.fingerprint == case.fingerprint or not case.fingerprint]
        return Shown("bad", own[0].message)
    found = outcome.findings[0]
    return Shown("unknown", reason=f"another finding of the check may hide it: {found.message} [{found.fingerprint}]")


def _values(case: Case, observation: Observation) -> str:
    """The field that the fingerprint names, as it was observed; empty where it is none that is reported as such."""
    parts = case.fingerprint.split(":")
    name = parts[1] if len(parts) > 1 else ""
    if observation.session is not None:
        mode = name.removeprefix("kv_lengths-")
        reads = [list(read) for one in observation.session.forwards if one.mode == mode for read in one.reads]
        return f"{name}={reads[0]}" if reads else observation.session.error
    held = [str(seen.fields[name].values.tolist()) for seen in observation.seen if name in seen.fields]
    if held:
        return f"{name}={', '.join(held)}"
    return observation.verdict or next((seen.error for seen in observation.seen if seen.error), "")
