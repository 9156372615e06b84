"""`python -m benchmarks [--sglang SPEC] [--quick] [--scan] [--engine] [--json FILE]`."""

import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from benchmarks import engine, measures, sanitizer
from harness.subject.source import resolve


def main(
    sglang: Annotated[Optional[str], typer.Option(help="Which sglang; the default of `harness check`.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One turn of everything.")] = False,
    scan: Annotated[bool, typer.Option("--scan", help="Measure a whole scan, too.")] = False,
    engines: Annotated[bool, typer.Option("--engine", help="Measure the engine subject, too.")] = False,
    json_file: Annotated[Optional[Path], typer.Option("--json")] = None,
) -> None:
    """Measure the harness on its own work."""
    source = resolve(sglang)
    turns = 1 if quick else 3
    lines = [
        *measures.sweep_against_bare(source, turns),
        *measures.sweep_on_all_cores(source, 2.0 if quick else 10.0),
        *measures.hypothesis_share(source, 3 if quick else 10),
        *measures.start_up(source, turns),
        *measures.restart(source, 3 if quick else 9),
        *measures.whole_check(source),
        *sanitizer.overhead(5 if quick else 40),
        *measures.emulated_device(),
    ]
    if scan:
        lines += measures.whole_scan([sys.executable, "-m", "harness", "scan"])
    if engines:
        lines += engine.engine(source, turns)
    measures.show(lines)
    if json_file is not None:
        measures.write(lines, json_file)


typer.run(main)
