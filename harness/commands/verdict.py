"""One case on one sglang, answered as `git bisect run` expects it."""

from pathlib import Path

from rich.console import Console

from harness.bisect.decision import Decision, Subject, decide_all
from harness.bisect.sequential import rates
from harness.bisect.verdict import check_of
from harness.commands.console import output
from harness.commands.plans import require_device
from harness.errors import BisectExit, NothingToTest
from harness.report.progress import Bars
from harness.scenario.case import read_case
from harness.subject.source import resolve

STATUS = {"good": BisectExit.GOOD, "bad": BisectExit.BAD, "unknown": BisectExit.SKIP}


def verdict(case_file: Path, spec: str | None, subject: Subject, rate: float) -> BisectExit:
    """Say whether the fingerprint of the case shows on an sglang: good, bad, or not to be judged there.

    `rate` is the share of the runs that show it on a bad sglang; below 1, a sequential test makes as many runs as it
    takes. Whatever has to do with the case or with this machine, and not with the sglang, is raised.
    """
    case = read_case(case_file)
    check_of(case)
    require_device(subject.device)
    with Bars(Console(stderr=True)) as bars:
        try:
            source = resolve(spec, bars.note)
        except NothingToTest as error:
            decided, name = Decision("unknown", 0, 0, reason=str(error)), str(spec)
        else:
            (decided,) = decide_all(source, [(case, rates(rate))], subject)
            name = source.release
    console = output()
    why = decided.message or decided.reason or decided.values or "the check passed"
    runs = f" ({decided.shown} of {decided.runs} runs)" if decided.runs > 1 else ""
    console.print(f"{decided.answer}: sglang {name}: {why}{runs}", highlight=False, soft_wrap=True, markup=False)
    for other in decided.others:
        console.print(f"not counted: {other}", highlight=False, soft_wrap=True, markup=False)
    return STATUS[decided.answer]
