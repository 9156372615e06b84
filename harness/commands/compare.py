"""Recording a subject, checking a recording, and comparing two sides."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.commands.console import output
from harness.commands.plans import through_words
from harness.errors import Exit, UsageError
from harness.files import write_atomically
from harness.parity.comparison import Comparison
from harness.parity.plan import COUNTS, planned
from harness.parity.recording import SCHEMA, Recording, Run
from harness.parity.sides import Side, device_of, opened
from harness.parity.writing import record as write_recording
from harness.report.compared import show_comparison
from harness.report.document import encode
from harness.report.progress import Bars
from harness.scenario import MetadataScenario
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor

STATUSES = {"EQUAL": Exit.PASSED, "WITHIN NOISE": Exit.PASSED, "DIFFERENT": Exit.FINDINGS, "UNKNOWN": Exit.UNKNOWN}


def record(
    subject: str, spec: str | None, profile: str, seed: int, only: Sequence[str], out: Path, through: str | None
) -> Exit:
    """Record what a subject sees of the scenarios of a profile; one that was killed goes on."""
    count, device = _count(profile), device_of(subject)
    words = through_words(through)
    with Bars(Console(stderr=True)) as bars, Supervisor(resolve(spec, bars.note), device, words) as supervisor:
        info = supervisor.info
        scenarios = planned([info], count, seed, only)
        run = Run(SCHEMA, info, profile, seed, tuple(only), len(scenarios))
        write_recording(supervisor, scenarios, run, out, lambda *at: bars.advance("record", info.device, *at))
    output().print(
        f"{out}: {len(scenarios)} scenarios of sglang {info.release}, {info.kind} on {info.device}.", soft_wrap=True
    )
    return Exit.PASSED


def verify(folder: Path) -> Exit:
    """Say that the recording in `folder` is whole; one that is not is refused with status 2."""
    with Recording.open(folder) as recording:
        info, count = recording.info, len(recording.scenarios)
        output().print(
            f"{folder} is whole: {count} scenarios of sglang {info.release}, {info.kind} on {info.device}.",
            soft_wrap=True,
        )
    return Exit.PASSED


def compare(
    words: tuple[str, str],
    profile: str,
    seed: int,
    only: Sequence[str],
    throughs: tuple[str | None, str | None],
    json_file: Path | None,
) -> Exit:
    """Compare two sides, show the result and write the document that was asked for."""
    count = _count(profile)
    with (
        Bars(Console(stderr=True)) as bars,
        opened(words[0], through_words(throughs[0]), bars.note) as a,
        opened(words[1], through_words(throughs[1]), bars.note) as b,
    ):
        both, alone = _scenarios(a, b, count, seed, only)
        comparison = Comparison(a, b)
        comparison.run(both, lambda *at: bars.advance("compare", "scenarios", *at))
        for scenario, side in alone:
            comparison.only_one(scenario, side)
    document = comparison.document()
    show_comparison(output(), document)
    if json_file is not None:
        write_atomically(json_file, encode(document))
    return STATUSES[document.verdict]


def _scenarios(
    a: Side, b: Side, count: int, seed: int, only: Sequence[str]
) -> tuple[tuple[MetadataScenario, ...], list[tuple[MetadataScenario, str]]]:
    """What both sides are asked, and what only one of two recordings has: a recording is asked what it knows."""
    recorded = [side.scenarios for side in (a, b) if isinstance(side, Recording)]
    if not recorded:
        return planned([a.info, b.info], count, seed, only), []
    if only:
        raise UsageError("--only chooses what is drawn, and a recording has what it was recorded with.")
    if len(recorded) == 1:
        return recorded[0], []
    common = set(recorded[0]) & set(recorded[1])
    alone = [(one, name) for name, own in zip("ab", recorded, strict=True) for one in own if one not in common]
    return tuple(one for one in recorded[0] if one in common), alone


def _count(profile: str) -> int:
    if profile not in COUNTS:
        raise UsageError(f"there is no profile {profile!r}: the profiles are {', '.join(COUNTS)}.")
    return COUNTS[profile]
