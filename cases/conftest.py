"""The bench: one subject for the whole run, the judging of scenarios, and the known findings of its release."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.campaign.run import Run
from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.check import Check
from harness.checks.finding import Finding
from harness.checks.registry import CHECKS
from harness.errors import HarnessError
from harness.inventory.axes import names_in
from harness.report.replay import command, write_cases
from harness.scenario import Scenario
from harness.scenario.capability import missing
from harness.scenario.pinned import known_in, pinned_cases
from harness.scenario.session_strategies import Server
from harness.scenario.strategies import Cell
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

BENCH = pytest.StashKey["Bench"]()
#: Lines for the end of the run.
SUMMARY = pytest.StashKey[list[str]]()


class Bench:
    """A subject under test and everything that has been judged with it."""

    def __init__(self, supervisor: Supervisor, profile: str, baseline: str | None) -> None:
        self.supervisor = supervisor
        self.profile = profile
        self.capabilities = supervisor.info.capabilities
        self.named = names_in(Path(supervisor.source.path))
        checks = [check for check in CHECKS.values() if not check.needs or check.needs in self.capabilities]
        self.tally = Tally([check.id for check in checks])
        self.checks = checks
        self.accepted = {supervisor.info.release, baseline or ""}
        self.known = known_in(self.accepted, pinned_cases())
        self.met: set[str] = set()

    def available(self, cell: Cell) -> Cell:
        """`cell` with the algorithms that this sglang has; a skip where it has none of them."""
        known = tuple(name for name in cell.algorithms if name in (*self.capabilities, "NONE"))
        if not known:
            pytest.skip(f"sglang {self.supervisor.info.release} has no {cell.algorithms[0]}")
        return cell._replace(algorithms=known)

    def require(self, algorithm: str) -> None:
        """Skip where this sglang has no `algorithm`."""
        if algorithm not in self.capabilities:
            pytest.skip(f"sglang {self.supervisor.info.release} has no {algorithm}")

    def available_server(self, server: Server) -> Server:
        """`server` without the options and switches that this sglang has not; a skip where it lacks the algorithm."""
        if missing(server.session(()), self.capabilities):
            pytest.skip(f"sglang {self.supervisor.info.release} has no {server.algorithm}")
        return server._replace(row=tuple((name, value) for name, value in server.row if name in self.named))

    def require_right(self, scenario: Scenario, groups: Collection[str]) -> None:
        """Fail with the first finding of `groups` that is not known for this release, or where one could not judge."""
        __tracebackhide__ = True
        findings, unknown = self.judge(scenario, [check for check in self.checks if check.group in groups])
        for finding in findings:
            if finding.fingerprint not in self.known:
                pytest.fail(self.explain(finding), pytrace=False)
            self.met.add(finding.fingerprint)
        if unknown:
            pytest.fail(f"UNKNOWN: {unknown[0]}", pytrace=False)

    def judge(self, scenario: Scenario, checks: Sequence[Check]) -> tuple[list[Finding], list[str]]:
        """The findings of `scenario` by `checks`, and a sentence for each check that could not judge it."""
        before = {check: counts.unknown for check, counts in self.tally.checks.items()}
        findings = Trial(self.supervisor.observe, checks, self.tally).judge(scenario)
        unknown = [check for check, counts in self.tally.checks.items() if counts.unknown > before[check]]
        return findings, [f"{check} could not judge: {self.tally.reasons[check]}" for check in unknown]

    def explain(self, finding: Finding) -> str:
        """A finding as a failure message; its case file is written on the way."""
        run = Run(self.supervisor.info, self.profile, 0, self.tally.checks, [finding])
        write_cases(run)
        return f"{finding.message}\n{finding.meaning}\n{command(run, finding)}\n[{finding.fingerprint}]"


@pytest.fixture(scope="session")
def bench(request: pytest.FixtureRequest, source: Source, device: str) -> Iterator[Bench]:
    """The subject, started once; a run whose subject cannot be started fails."""
    try:
        supervisor = Supervisor(source, device)
    except HarnessError as error:
        pytest.fail(str(error), pytrace=False)
    with supervisor:
        config = request.config
        bench = Bench(supervisor, config.getoption("--profile"), config.getoption("--baseline"))
        config.stash[BENCH] = bench
        yield bench


def summary(bench: Bench) -> list[str]:
    """How often each check ran, and which known findings were met again."""
    lines = [
        f"{check_id}: ran {counts.ran}, failed {counts.failed}, unknown {counts.unknown}"
        for check_id, counts in bench.tally.checks.items()
    ]
    losses = bench.supervisor.losses
    if losses.unreproduced:
        lines.append(f"lost by chance: {losses.unreproduced} times, the last time by {losses.last}")
    release = bench.supervisor.info.release
    return lines + [f"known in {release}: {fingerprint}" for fingerprint in sorted(bench.met)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what the bench has to tell; a worker of pytest-xdist sends it to the process that prints."""
    config = session.config
    bench = config.stash.get(BENCH, None)
    if bench is None:
        return
    config.stash[SUMMARY] = summary(bench)
    if hasattr(config, "workeroutput"):
        config.workeroutput["summary"] = config.stash[SUMMARY]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist sent; one that crashed has sent nothing."""
    told = getattr(node, "workeroutput", {})
    if "summary" in told:
        node.config.stash[SUMMARY] = told["summary"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(SUMMARY, None)
    if lines is None:
        return
    terminalreporter.section("checks")
    for line in lines:
        terminalreporter.write_line(line)
