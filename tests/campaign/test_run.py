"""A whole run on subjects in this process: statuses, what could not be judged, and what is left out."""

from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import pytest
from msgspec.structs import replace

from harness.campaign import run as module
from harness.campaign.profile import PROFILES, Profile
from harness.campaign.run import Plan, Run, example_database, no_subject, run
from harness.campaign.tally import Counts
from harness.campaign.trial import Observe
from harness.checks.finding import Finding
from harness.checks.gate import GATES
from harness.checks.registry import CHECKS
from harness.errors import CannotJudge, Exit
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario, SessionScenario
from harness.scenario.case import SCHEMA, Case
from harness.scenario.observation import Fault, Observation
from harness.scenario.session import Visit
from harness.scenario.strategies import Cell
from harness.shadow.overhead import Overhead
from harness.subject.frames import SubjectInfo
from harness.subject.losses import Losses, LostScenario
from harness.subject.source import Source
from tests.campaign import planted
from tests.ideal import observation

SOURCE = Source("0.5.18", "release", "/cache/0.5.18", "0.5.18")
SMALL = Profile("small", 3, 3, sessions=3, servers=1, sweep_blocks=range(4, 5), sweep_pairs=False, derandomize=True)
THOROUGH = SMALL._replace(examples=15)  #: enough for every check to have something to say
INFO = SubjectInfo("ascend", "0.5.18", "emulated", {}, ("DFLASH",), "", "0.5.18")
GUARD = Plan(("guard",), SMALL, 0)
SESSIONS = Plan(("sessions",), SMALL, 0)
METADATA = Plan(("metadata",), SMALL, 0)
#: Cells in which every check of metadata has something to say, host-bound with its capability aside.
CELLS = [
    planted.CELL,
    Cell(("DFLASH",), "target_verify", "graph", "swa"),
    Cell(("NONE",), "extend", "eager", "mla"),
    Cell(("DFLASH",), "target_verify", "graph", "gdn"),
]


class InProcess:
    """Stands in for the supervisor."""

    def __init__(self, observe: Observe, info: SubjectInfo = INFO) -> None:
        self.info = info
        self.source = SOURCE
        self.overhead = Overhead(4.0, 1.0)
        self.answer = observe
        self.closed = False
        self.losses = Losses()
        self.faults: dict[Scenario, Fault] = {}
        self.asked: list[Scenario] = []

    def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
        self.asked += scenarios
        return self.answer(scenarios)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closed = True


Use = Callable[..., InProcess]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Make a run use an `observe` of this process, and but a few cells and servers; no sources are read."""

    def install(observe: Observe, info: SubjectInfo = INFO, cells: Sequence[Cell] = CELLS) -> InProcess:
        subject = InProcess(observe, info)
        monkeypatch.setattr(module, "Supervisor", lambda source, device, through: subject)
        monkeypatch.setattr(module, "cells", lambda capabilities: list(cells))
        monkeypatch.setattr(module, "names_in", lambda path: {"page_size", "schedule_policy"})
        return subject

    return install


def crashed(scenarios: Sequence[Scenario]) -> list[Observation]:
    return [Observation(fault=Fault("crash", "killed")) for _ in scenarios]


def lost(scenarios: Sequence[Scenario]) -> list[Observation]:
    raise CannotJudge("the subject was lost")


def test_an_ideal_subject_passes(use: Use) -> None:
    use(planted.subject())
    done = run(SOURCE, Plan((), THOROUGH, 7))
    assert done.findings == []
    assert done.unknown == {}
    assert done.exit_status == Exit.PASSED
    assert (done.subject, done.profile, done.seed) == (INFO, "small", 7)


def test_every_check_that_the_sglang_can_have_is_counted(use: Use) -> None:
    use(planted.subject())
    counts = run(SOURCE, Plan((), THOROUGH, 0)).checks
    assert set(counts) == {check.id for check in CHECKS.values() if not check.needs}
    assert all(count.ran > 0 for count in counts.values())


def test_a_check_that_needs_what_the_sglang_has_not_is_left_out(use: Use) -> None:
    use(planted.subject(), INFO)
    assert "host-bound" not in run(SOURCE, METADATA).checks
    use(planted.subject(), SubjectInfo("ascend", "0.5.23", "emulated", {}, ("DFLASH", "absent-host")))
    assert "host-bound" in run(SOURCE, METADATA).checks


def test_only_the_checks_of_the_named_groups_run(use: Use) -> None:
    subject = use(planted.subject())
    assert set(run(SOURCE, GUARD).checks) == {"device-gate"}
    assert all(isinstance(scenario, GateScenario) for scenario in subject.asked)


def test_sessions_are_drawn_for_every_server_of_the_profile(use: Use) -> None:
    subject = use(planted.subject())
    run(SOURCE, SESSIONS)
    sessions = [one for one in subject.asked if isinstance(one, SessionScenario)]
    servers = {one.server: (one.algorithm, one.executor) for one in sessions}
    assert len(sessions) == len(subject.asked) == 4 * SMALL.sessions
    assert Counter(servers.values()) == {(name, how): 1 for name in ("DFLASH", "NONE") for how in ("eager", "graph")}


def test_a_fault_of_sessions_is_shrunk_to_one_visit(use: Use) -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        return [
            Observation(session=replace(seen.session, accounts=("turn 3: page 2 is free twice (1 page)",)))
            for seen in map(observation, scenarios)
            if seen.session is not None
        ]

    use(observe)
    findings = run(SOURCE, SESSIONS).findings
    assert {finding.check for finding in findings} == {"session-accounts"}
    assert {finding.algorithm for finding in findings} == {"DFLASH", "NONE"}
    for finding in findings:
        assert isinstance(finding.scenario, SessionScenario)
        assert finding.scenario.visits == (Visit(1, 1, own=0),)


def test_a_fault_is_a_finding_and_status_1(use: Use) -> None:
    use(planted.subject(planted.block_added_twice))
    done = run(SOURCE, METADATA)
    assert "kv-lengths:seq_lens_cpu_int:DFLASH:eager:target_verify:block-added-again" in {
        finding.fingerprint for finding in done.findings
    }
    assert done.exit_status == Exit.FINDINGS


def test_findings_are_sorted_by_fingerprint(use: Use) -> None:
    use(planted.subject(planted.block_added_twice, planted.queries_not_counted))
    fingerprints = [finding.fingerprint for finding in run(SOURCE, METADATA).findings]
    assert len(fingerprints) > 1
    assert fingerprints == sorted(fingerprints)


def test_a_gate_that_refuses_is_a_finding(use: Use) -> None:
    use(lambda scenarios: [Observation(verdict="only cuda is supported") for _ in scenarios])
    done = run(SOURCE, GUARD)
    assert {finding.fingerprint for finding in done.findings} == {
        "device-gate:DFLASH:supported:refused",
        "device-gate:DFLASH:options:refused",
        "device-gate:DFLASH:options:unhelpful",
    }


def test_a_check_that_never_ran_is_unknown_and_status_3(use: Use) -> None:
    use(planted.subject(), cells=[])
    done = run(SOURCE, METADATA)
    assert done.unknown["replay-fresh"] == "it never ran"
    assert done.exit_status == Exit.UNKNOWN


def test_a_check_that_could_not_be_judged_is_unknown_with_its_reason(use: Use) -> None:
    use(crashed)
    done = run(SOURCE, GUARD)
    assert done.unknown == {"device-gate": "crash: killed"}
    assert done.checks == {"device-gate": Counts(unknown=len(GATES))}
    assert done.exit_status == Exit.UNKNOWN


def test_a_check_that_could_not_be_judged_once_is_unknown_although_it_ran(use: Use) -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        fault = Observation(fault=Fault("hang", "no answer"))
        return [fault if one == GateScenario("nonsense") else observation(one) for one in scenarios]

    use(observe)
    done = run(SOURCE, GUARD)
    assert done.checks == {"device-gate": Counts(ran=len(GATES) - 1, unknown=1)}
    assert done.unknown == {"device-gate": "hang: no answer"}
    assert done.exit_status == Exit.UNKNOWN


def test_a_run_tells_what_the_sanitizer_cost(use: Use) -> None:
    use(planted.subject())
    assert run(SOURCE, GUARD).overhead == Overhead(4.0, 1.0)


def test_a_subject_that_cannot_be_started_is_a_run_with_nothing_but_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Source, device: str, through: Sequence[str]) -> InProcess:
        raise CannotJudge("sglang is no subject")

    monkeypatch.setattr(module, "Supervisor", refuse)
    done = run(SOURCE, METADATA)
    assert done == no_subject(SOURCE, METADATA, "sglang is no subject")
    assert (done.subject.release, done.subject.spec, done.subject.device) == ("0.5.18", "0.5.18", "emulated")
    assert done.unknown == {"subject": "sglang is no subject"}
    assert done.exit_status == Exit.UNKNOWN


def test_a_subject_that_is_lost_is_unknown_and_closed(use: Use) -> None:
    subject = use(lost)
    done = run(SOURCE, METADATA)
    assert done.unknown == {"subject": "the subject was lost"}
    assert subject.closed


def test_what_was_found_before_the_subject_was_lost_is_kept(use: Use) -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        if scenarios and isinstance(scenarios[0], MetadataScenario):
            return lost(scenarios)
        return [Observation(verdict="accepted") for _ in scenarios]

    use(observe)
    done = run(SOURCE, Plan((), SMALL, 0))
    assert {finding.check for finding in done.findings} == {"device-gate"}
    assert done.unknown == {"subject": "the subject was lost"}
    assert done.exit_status == Exit.FINDINGS


def test_a_run_tells_how_often_its_subject_was_lost_and_which_scenarios_cost_it(use: Use) -> None:
    subject = use(planted.subject())
    subject.losses.crashes, fault = 3, Fault("crash", "killed")
    subject.faults[GateScenario("npu")] = fault
    done = run(SOURCE, GUARD)
    assert done.losses == Losses(crashes=3)
    assert done.lost == (LostScenario(GateScenario("npu"), fault),)


def test_the_subject_is_started_through_the_command_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[Sequence[str]] = []

    def start(source: Source, device: str, through: Sequence[str]) -> InProcess:
        commands.append(through)
        return InProcess(planted.subject())

    monkeypatch.setattr(module, "Supervisor", start)
    run(SOURCE, GUARD._replace(through=("prlimit", "--as=1")))
    assert commands == [("prlimit", "--as=1")]


def test_the_subject_is_closed_after_a_run(use: Use) -> None:
    subject = use(planted.subject())
    run(SOURCE, GUARD)
    assert subject.closed


def test_pinned_scenarios_are_judged_first_and_not_shrunk(use: Use) -> None:
    pinned = MetadataScenario("DFLASH", "target_verify", ((Request(999), Request(5, row=2)),), draft_tokens=7)
    subject = use(planted.subject(planted.block_added_twice), cells=[])
    done = run(SOURCE, METADATA._replace(pinned=(Case(SCHEMA, pinned),), profile=SMALL._replace(sweep_blocks=range(0))))
    assert subject.asked[0] == pinned
    assert {finding.scenario for finding in done.findings} == {pinned}


def test_a_pinned_scenario_that_the_sglang_has_no_algorithm_for_is_left_out(use: Use) -> None:
    def observe(scenarios: Sequence[Scenario]) -> list[Observation]:
        absent = Observation(fault=Fault("unsupported", "this sglang has no algorithm DSPARK"))
        return [absent if one.algorithm == "DSPARK" else observation(one) for one in scenarios]

    pinned = MetadataScenario("DSPARK", "target_verify", ((Request(5),),), draft_tokens=4)
    use(observe)
    done = run(SOURCE, METADATA._replace(pinned=(Case(SCHEMA, pinned, "kv-lengths"),)))
    assert [reason for reason in done.unknown.values() if "DSPARK" in reason] == []


def test_the_same_plan_gives_the_same_run(use: Use) -> None:
    use(planted.subject(planted.block_added_twice))
    assert run(SOURCE, METADATA) == run(SOURCE, METADATA)


def test_progress_goes_from_the_first_cell_to_the_end(use: Use) -> None:
    use(planted.subject())
    steps: list[tuple[str, int, int]] = []
    run(SOURCE, METADATA, lambda stage, done, total: steps.append((stage, done, total)))
    assert [stage for stage, _, _ in steps] == [*map(str, CELLS), "sweep", "done"]
    assert [done for _, done, _ in steps] == list(range(len(CELLS) + 2))
    assert {total for _, _, total in steps} == {len(CELLS) + 1}


FOUND = Finding("kv-lengths", "one", "DFLASH", "eager", "target_verify", "wrong", "matters", GateScenario("npu"))


@pytest.mark.parametrize(
    ("findings", "unknown", "status"),
    [
        ([], {}, Exit.PASSED),
        ([], {"kv-lengths": "it never ran"}, Exit.UNKNOWN),
        ([FOUND], {}, Exit.FINDINGS),
        ([FOUND], {"subject": "lost"}, Exit.FINDINGS),
    ],
)
def test_findings_beat_unknown_and_unknown_beats_passed(
    findings: list[Finding], unknown: dict[str, str], status: Exit
) -> None:
    assert Run(INFO, "dev", 0, {}, findings, unknown).exit_status == status


def test_only_nightly_runs_share_failing_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_EXAMPLES", "/shared/examples")
    shared = {name: example_database(profile) for name, profile in PROFILES.items()}
    assert shared == {"dev": None, "pr": None, "nightly": "/shared/examples"}


def test_failing_examples_lie_in_the_working_directory_where_no_place_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_EXAMPLES", raising=False)
    assert example_database(PROFILES["nightly"]) == ".harness/examples"
