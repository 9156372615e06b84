"""What the checks would catch: mutants of one sglang, run in its subject's memory."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harness.commands.console import output
from harness.errors import Exit
from harness.files import write_atomically
from harness.mutate.arguments import arguments
from harness.mutate.scenes import Draw
from harness.mutate.study import ARMS, By, study
from harness.mutate.targets import targets_of
from harness.report.document import encode
from harness.report.mutation import show_study, study_document
from harness.report.power import power_page
from harness.report.progress import Bars
from harness.subject.source import resolve


def mutate(
    spec: str | None,
    names: Sequence[str],
    groups: Sequence[str],
    limit: int | None,
    seed: int,
    sweep: bool,
    faults: bool,
    without: Sequence[str],
    minutes: float | None,
    json_file: Path | None,
    page_file: Path | None,
) -> Exit:
    """Run the mutants and the faults of the catalogue, show the score and what survives, and write the files asked for.

    `faults` alone leaves the mutants out; named targets leave the faults out, unless they are asked for as well. The
    checks `without` are not asked: what they alone see lives. What survives is a finding.
    """
    with Bars(Console(stderr=True), lines=10) as bars:
        source = resolve(spec, bars.note)
        named = bool(names or groups)
        targets = [] if faults and not named else targets_of(Path(source.path), names, groups)
        arms: tuple[By, ...] = ARMS if sweep else ARMS[:1]
        found = study(
            source,
            targets,
            arguments(),
            limit,
            seed,
            Draw(seed=seed),
            arms,
            faults or not named,
            without,
            minutes,
            lambda stage, done, total: bars.advance(f"sglang {source.release}", stage, done, total),
            bars.note,
        )
    show_study(output(), found)
    if json_file is not None:
        write_atomically(json_file, encode(study_document(found)))
    if page_file is not None:
        write_atomically(page_file, power_page(found).encode())
    missed = [fault for fault in found.faults if not fault.as_it_should]
    return Exit.FINDINGS if found.unexplained or found.refuted or missed else Exit.PASSED
