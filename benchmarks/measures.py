"""What is measured, one function per line of the table."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil
from hypothesis import HealthCheck, Phase, given, settings
from rich.console import Console
from rich.table import Table

from harness.campaign.profile import profile_named
from harness.campaign.run import Plan, run
from harness.campaign.sweeping import run_sweep
from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import CHECKS
from harness.files import write_atomically
from harness.scenario import MetadataScenario, Request, Scenario
from harness.scenario.observation import Observation
from harness.scenario.strategies import cells, scenarios
from harness.scenario.sweep import sweep
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor


class Measure(NamedTuple):
    """A line of the table: what, how much, and the wish; `better` says on which side of the wish is good."""

    name: str
    value: float
    unit: str
    wish: float
    better: str


def show(lines: Sequence[Measure]) -> None:
    """Print the table."""
    table = Table("measure", "value", "wish")
    for line in lines:
        wish = f"{line.better} than {line.wish:g}" if line.wish else ""
        table.add_row(line.name, f"{line.value:.3g} {line.unit}", wish)
    Console().print(table)


def write(lines: Sequence[Measure], file: Path) -> None:
    """Write the table as JSON, whole or not at all."""
    write_atomically(file, json.dumps([line._asdict() for line in lines], indent=2).encode() + b"\n")


BLOCKS = range(8, 9)
ONE = MetadataScenario(algorithm="DFLASH", mode="target_verify", draft_tokens=16, rounds=((Request(prefix=300),),))


def _checks(supervisor: Supervisor) -> list:
    capabilities = supervisor.info.capabilities
    return [check for check in CHECKS.values() if not check.needs or check.needs in capabilities]


def checked_rate(source: Source, repeats: int) -> list[float]:
    """Sweep scenarios a second through process, frames and checks, one subject beside one checker."""
    with Supervisor(source) as supervisor:
        checks = _checks(supervisor)
        everything = list(sweep(BLOCKS))
        supervisor.observe(everything[:500])
        rates = []
        for _ in range(repeats):
            start = time.perf_counter()
            run_sweep(supervisor.observe, checks, Tally([check.id for check in checks]), everything)
            rates.append(len(everything) / (time.perf_counter() - start))
    return rates


def sweep_against_bare(source: Source, repeats: int) -> list[Measure]:
    """Checked steps against bare calls, turn by turn, so that both meet the same machine."""
    bare, checked = [], []
    for _ in range(repeats):
        output = subprocess.run(
            [sys.executable, "-m", "benchmarks.bare", source.path, "3"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join((source.path, os.getcwd())), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        bare += json.loads(output.splitlines()[-1])
        checked += checked_rate(source, 3)
    ratio = median(checked) / median(bare)
    return [
        Measure("sweep: checked steps per bare call", ratio, "", 0.5, "more"),
        Measure("sweep: bare calls a second", median(bare), "1/s", 0, "more"),
    ]


def _half(source: Source, seconds: float, count: "multiprocessing.Queue[float]") -> None:
    with Supervisor(source) as supervisor:
        checks = _checks(supervisor)
        everything = list(sweep(BLOCKS))
        supervisor.observe(everything[:500])
        done, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            run_sweep(supervisor.observe, checks, Tally([check.id for check in checks]), everything)
            done += len(everything)
        count.put(done / (time.perf_counter() - start))


def sweep_on_all_cores(source: Source, seconds: float) -> list[Measure]:
    """Sweep scenarios a minute with a subject per core."""
    context = multiprocessing.get_context("spawn")
    counts: multiprocessing.Queue[float] = context.Queue()
    halves = [context.Process(target=_half, args=(source, seconds, counts)) for _ in range(os.cpu_count() or 1)]
    for half in halves:
        half.start()
    rate = sum(counts.get() for _ in halves)
    for half in halves:
        half.join()
    return [Measure("sweep: scenarios a minute, all cores", rate * 60, "1/min", 20_000, "more")]


def hypothesis_share(source: Source, examples: int) -> list[Measure]:
    """How much of the time outside Hypothesis's own generation is the subject's."""
    with Supervisor(source) as supervisor:
        checks = _checks(supervisor)
        inside, subject = 0.0, 0.0

        def observe(wanted: Sequence[Scenario]) -> list[Observation]:
            nonlocal subject
            start = time.perf_counter()
            answer = supervisor.observe(wanted)
            subject += time.perf_counter() - start
            return answer

        trial = Trial(observe, checks, Tally([check.id for check in checks]))
        for cell in cells(supervisor.info.capabilities):

            @settings(
                max_examples=examples,
                database=None,
                deadline=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(scenarios(cell, supervisor.info.capabilities))
            def drawn(scenario: MetadataScenario) -> None:
                nonlocal inside
                start = time.perf_counter()
                trial.judge(scenario)
                inside += time.perf_counter() - start

            drawn()
    return [Measure("hypothesis: subject's share outside generation", subject / inside, "", 0.4, "more")]


def start_up(source: Source, repeats: int) -> list[Measure]:
    """From nothing until a subject has imported sglang and answered its first scenario."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        with Supervisor(source) as supervisor:
            supervisor.observe([ONE])
        times.append(time.perf_counter() - start)
    return [Measure("start-up of a subject, to its first answer", median(times), "s", 15, "less")]


def restart(source: Source, repeats: int) -> list[Measure]:
    """From the death of a worker to the first answer of the next one; and the largest memory of a subject."""
    times = []
    with Supervisor(source) as supervisor:
        supervisor.observe([ONE])
        for _ in range(repeats):
            template = psutil.Process(supervisor.process.pid)
            template.children()[0].kill()
            start = time.perf_counter()
            supervisor.observe([ONE])
            times.append(time.perf_counter() - start)
    return [Measure("fresh subject after a crash", median(times), "s", 0.5, "less")]


def whole_check(source: Source) -> list[Measure]:
    """One `dev` run: its time, and the largest memory that any process of its subject had."""
    before = set(psutil.pids())
    peaks: dict[int, int] = {}

    def watch(stage: str, done: int, total: int) -> None:
        for process in psutil.Process().children(recursive=True):
            if process.pid not in before:
                status = Path(f"/proc/{process.pid}/status").read_text()
                peaks[process.pid] = int(status.split("VmHWM:")[1].split()[0])

    start = time.perf_counter()
    run(source, Plan((), profile_named("dev"), 0), watch)
    return [
        Measure("one dev check, nothing pinned", time.perf_counter() - start, "s", 0, "less"),
        Measure("largest memory of a subject", max(peaks.values()) / 1024, "MiB", 1536, "less"),
    ]


def whole_scan(command: Sequence[str]) -> list[Measure]:
    """`harness scan` over the cached releases."""
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    return [Measure("harness scan over the cached releases", time.perf_counter() - start, "s", 240, "less")]


def emulated_device() -> list[Measure]:
    """What a small operator of torch costs on the emulated device, over the same on the host."""
    command = [sys.executable, "-m", "benchmarks.device"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured = json.loads(output.splitlines()[-1])
    lines = []
    for name, (ratio, more) in measured.items():
        lines.append(Measure(f"emulated device: {name}, per the same on the host", ratio, "", 0, "less"))
        lines.append(Measure(f"the same, {name}: more than on the host", more, "us", 0, "less"))
    return lines


All = Callable[[Source], list[Measure]]
