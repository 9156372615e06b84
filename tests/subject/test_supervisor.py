"""The supervisor: whatever happens in a subject's processes becomes an observation, or one sentence."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import CannotJudge
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario
from harness.scenario.case import read_cases
from harness.scenario.observation import Fault, Observation
from harness.shadow.overhead import Overhead
from harness.subject import losses
from harness.subject import supervisor as module
from harness.subject.frames import write_frame
from harness.subject.losses import Losses
from harness.subject.pending import unanswered
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor
from tests import ideal
from tests.subject.fake_subject import COMMAND, SESSIONS, Misdeed, Question, Start, fatal, killed, scenario

FIRST_TRIES = 4  #: as long as nothing is known about the chance of a crash
HONEST = GateScenario("npu")
ACCEPTED = Observation(verdict="accepted")
METADATA = MetadataScenario("DFLASH", "target_verify", ((Request(300), Request(5, row=2)),), draft_tokens=4)


def source(path: str = "PATH") -> Source:
    return Source(spec="./checkout", kind="git", path=path, release="0.5.18", revision="abc")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    with Supervisor(source(), command=COMMAND, pending=tmp_path_factory.mktemp("pending")) as supervisor:
        yield supervisor


@pytest.fixture
def subject(shared: Supervisor) -> Supervisor:
    """A subject that may be lost: the next test gets another one, which was never lost before."""
    for _ in range(2):
        shared.losses = Losses()
        shared.faults.clear()
        shared.observe([HONEST])
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Supervisor]:
    """A subject of the test's own, to be closed."""
    with Supervisor(source(), command=COMMAND, pending=tmp_path) as supervisor:
        yield supervisor


def ask(subject: Supervisor, question: Question) -> int:
    (answer,) = subject.observe([scenario(question)])
    return int(answer.verdict)


def only_fault(subject: Supervisor, misdeed: Misdeed) -> Fault:
    (answer,) = subject.observe([scenario(misdeed)])
    assert answer.fault is not None
    return answer.fault


def ends(process: int) -> bool:
    """Whether a process ends, now or soon; a zombie has ended."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        try:
            status = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return True
        if status.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_the_subject_says_what_it_is_and_the_source_which_sglang(subject: Supervisor) -> None:
    info = subject.info
    assert (info.kind, info.device, info.capabilities) == ("ascend", "emulated", ("DFLASH", "EAGLE"))
    assert (info.release, info.revision, info.spec) == ("0.5.18", "abc", "./checkout")


def test_observations_come_back_in_order(subject: Supervisor) -> None:
    scenarios: list[Scenario] = [METADATA, HONEST, GateScenario("cpu")]
    assert subject.observe(scenarios) == ideal.observe(scenarios)


def test_a_frame_for_several_workers_is_answered_in_order_and_each_by_its_own(subject: Supervisor) -> None:
    first, second = SESSIONS[:2]
    answers = subject.observe([HONEST, first, first, second, HONEST, first])
    assert [answers[0], answers[4]] == [ACCEPTED] * 2
    assert [answer.session is not None for answer in answers] == [False, True, True, True, False, True]
    assert answers[1] == answers[2] == answers[5]
    assert answers[3].verdict not in (answers[1].verdict, "")


def test_a_session_that_costs_its_worker_is_a_fault_and_the_next_one_is_answered(subject: Supervisor) -> None:
    fault = subject.observe([fatal(SESSIONS[0])])[0].fault
    assert fault is not None
    assert (fault.cause, fault.last_words) == ("crash", "the last words of a worker")
    assert subject.observe([SESSIONS[0]])[0].fault is None


def test_what_the_sanitizer_cost_adds_up(own: Supervisor) -> None:
    own.observe([METADATA, HONEST])
    own.observe([METADATA])
    assert own.overhead == Overhead(4.0, 1.0)


def test_nothing_is_observed_without_scenarios(subject: Supervisor) -> None:
    assert subject.observe([]) == []


@pytest.mark.parametrize(
    ("misdeed", "reason"),
    [
        (Misdeed.KILLED, "killed by SIGKILL"),
        (Misdeed.EXITS, "status 7"),
        (Misdeed.RAISES, "status 1"),
        (Misdeed.EATS_MEMORY, "status 1"),
    ],
)
def test_a_scenario_that_ends_the_worker_is_a_crash(subject: Supervisor, misdeed: Misdeed, reason: str) -> None:
    fault = only_fault(subject, misdeed)
    assert fault.cause == "crash"
    assert reason in fault.reason


def test_a_fresh_worker_answers_the_scenario_after_a_crash(subject: Supervisor) -> None:
    before = ask(subject, Question.WORKER)
    only_fault(subject, Misdeed.KILLED)
    assert subject.observe([HONEST]) == [ACCEPTED]
    assert ask(subject, Question.WORKER) != before


def test_of_a_frame_only_the_guilty_scenario_gets_the_fault(subject: Supervisor) -> None:
    answers = subject.observe([METADATA, scenario(Misdeed.KILLED), HONEST])
    assert [answers[0], answers[2]] == [ideal.observation(METADATA), ACCEPTED]
    assert answers[1].fault is not None
    assert answers[1].fault.cause == "crash"


def test_of_a_frame_every_guilty_scenario_gets_its_own_fault(subject: Supervisor) -> None:
    answers = subject.observe([scenario(Misdeed.EXITS), HONEST, scenario(Misdeed.KILLED), HONEST])
    reasons = [answer.fault.reason if answer.fault else "" for answer in answers]
    assert reasons == ["the subject ended with status 7", "", "the subject was killed by SIGKILL", ""]


def test_a_crash_costs_no_template(subject: Supervisor) -> None:
    template = ask(subject, Question.TEMPLATE)
    only_fault(subject, Misdeed.KILLED)
    assert ask(subject, Question.TEMPLATE) == template


def test_a_fault_keeps_what_the_subject_said_on_stderr(subject: Supervisor) -> None:
    assert "the last words of a worker" in only_fault(subject, Misdeed.KILLED).stderr


def test_a_subject_that_runs_out_of_memory_says_so_on_stderr(subject: Supervisor) -> None:
    assert only_fault(subject, Misdeed.EATS_MEMORY).last_words == "MemoryError"


def test_a_fault_keeps_nothing_that_was_said_before_its_scenario(subject: Supervisor) -> None:
    subject.stderr.write(b"noise\n")
    subject.stderr.flush()
    assert only_fault(subject, Misdeed.KILLED).stderr == "the last words of a worker\n"


def test_of_a_long_stderr_a_fault_keeps_the_end(subject: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STDERR_TAIL", 7)
    assert only_fault(subject, Misdeed.KILLED).stderr == "worker\n"


def test_a_scenario_that_hangs_is_a_hang(subject: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP_LIMIT", 0.3)
    assert only_fault(subject, Misdeed.HANGS).cause == "hang"


def test_a_fresh_worker_answers_the_scenario_after_a_hang(subject: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as impatient:
        impatient.setattr(module, "STEP_LIMIT", 0.3)
        only_fault(subject, Misdeed.HANGS)
    assert subject.observe([HONEST]) == [ACCEPTED]


def test_what_a_scenario_prints_on_stdout_disturbs_no_frame(subject: Supervisor) -> None:
    answers = subject.observe([scenario(Misdeed.PRINTS), HONEST])
    assert [answer.fault for answer in answers] == [None, None]
    assert subject.observe([HONEST]) == [ACCEPTED]


def test_another_number_of_observations_is_a_protocol_fault(subject: Supervisor) -> None:
    fault = only_fault(subject, Misdeed.SHORT)
    assert (fault.cause, fault.reason) == ("protocol", "the subject answered another number of scenarios")


def test_of_a_frame_with_another_number_of_observations_the_others_are_answered(subject: Supervisor) -> None:
    answers = subject.observe([HONEST, scenario(Misdeed.SHORT), HONEST])
    assert [answer.fault is None for answer in answers] == [True, False, True]


@pytest.mark.parametrize("misdeed", [Misdeed.CUTS_FRAME, Misdeed.KILLS_TEMPLATE])
def test_a_connection_that_ends_is_a_protocol_fault(subject: Supervisor, misdeed: Misdeed) -> None:
    fault = only_fault(subject, misdeed)
    assert (fault.cause, fault.reason) == ("protocol", "the other side closed the connection")


@pytest.mark.parametrize("misdeed", [Misdeed.TALKS, Misdeed.NO_MESSAGE])
def test_garbage_between_frames_is_a_protocol_fault(subject: Supervisor, misdeed: Misdeed) -> None:
    assert only_fault(subject, misdeed).cause == "protocol"


@pytest.mark.parametrize("misdeed", [Misdeed.KILLS_TEMPLATE, Misdeed.NO_MESSAGE])
def test_a_new_template_answers_after_one_that_was_lost(subject: Supervisor, misdeed: Misdeed) -> None:
    before = ask(subject, Question.TEMPLATE)
    only_fault(subject, misdeed)
    assert subject.observe([HONEST]) == [ACCEPTED]
    assert ask(subject, Question.TEMPLATE) != before


def test_of_a_frame_that_costs_the_template_only_the_guilty_scenario_gets_the_fault(subject: Supervisor) -> None:
    answers = subject.observe([HONEST, scenario(Misdeed.KILLS_TEMPLATE), HONEST])
    assert [answer.fault.cause if answer.fault else "" for answer in answers] == ["", "protocol", ""]


def test_a_template_that_stops_is_a_hang_and_is_replaced(subject: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    template, worker = ask(subject, Question.TEMPLATE), ask(subject, Question.WORKER)
    with monkeypatch.context() as impatient:
        impatient.setattr(module, "STEP_LIMIT", 0.3)
        assert only_fault(subject, Misdeed.STOPS_TEMPLATE).cause == "hang"
    assert ends(template)
    assert ends(worker)
    assert subject.observe([HONEST]) == [ACCEPTED]


def test_a_template_that_is_lost_again_and_again_is_given_up(
    subject: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "MAX_COSTLY", 1)
    only_fault(subject, Misdeed.KILLS_TEMPLATE)
    with pytest.raises(CannotJudge) as end:
        subject.observe([HONEST])
    sentence = "the subject ./checkout was lost 2 times while it answered 1 scenarios: giving up."
    assert str(end.value) == sentence


def test_a_worker_that_is_lost_again_and_again_is_given_up(
    subject: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "MAX_CRASHES", 2 * FIRST_TRIES - 1)
    only_fault(subject, Misdeed.KILLED)
    only_fault(subject, Misdeed.EXITS)
    with pytest.raises(CannotJudge, match=rf"was lost {2 * FIRST_TRIES} times while it answered 1 scenarios: giving"):
        subject.observe([HONEST])


def test_a_scenario_that_is_lost_by_chance_is_answered_and_the_losses_are_counted(subject: Supervisor) -> None:
    assert subject.observe([killed(FIRST_TRIES - 1)])[0].fault is None
    assert subject.losses == Losses(
        answered=2,
        crashes=FIRST_TRIES - 1,
        unreproduced=FIRST_TRIES - 1,
        last="crash: the subject was killed by SIGKILL",
    )


def test_a_scenario_that_is_lost_every_time_is_a_fault_and_no_chance(subject: Supervisor) -> None:
    only_fault(subject, Misdeed.KILLED)
    assert (subject.losses.crashes, subject.losses.unreproduced) == (FIRST_TRIES, 0)


def test_a_scenario_that_costs_its_subject_has_the_same_fault_for_ever_and_costs_no_more(subject: Supervisor) -> None:
    first = only_fault(subject, Misdeed.KILLED)
    before, crashes = ask(subject, Question.WORKER), subject.losses.crashes
    answers = subject.observe([HONEST, scenario(Misdeed.KILLED), METADATA])
    assert answers == [ACCEPTED, Observation(fault=first), ideal.observation(METADATA)]
    assert (ask(subject, Question.WORKER), subject.losses.crashes) == (before, crashes)


def test_a_frame_that_is_lost_by_chance_is_answered_and_the_loss_is_counted(subject: Supervisor) -> None:
    answers = subject.observe([HONEST, killed(1), METADATA])
    assert [answer.fault for answer in answers] == [None] * 3
    assert (subject.losses.crashes, subject.losses.unreproduced) == (1, 1)


def test_a_guilty_scenario_that_is_twice_in_a_frame_is_blamed_once(subject: Supervisor) -> None:
    answers = subject.observe([scenario(Misdeed.KILLED), HONEST, scenario(Misdeed.KILLED)])
    assert answers[0] == answers[2]
    assert subject.losses.crashes == 1 + FIRST_TRIES


def test_a_frame_with_a_guilty_scenario_is_no_loss_by_chance(subject: Supervisor) -> None:
    subject.observe([HONEST, scenario(Misdeed.KILLED), METADATA])
    assert (subject.losses.crashes, subject.losses.unreproduced) == (1 + FIRST_TRIES, 0)


def test_a_frame_goes_on_with_a_new_worker_after_the_device_is_lost(subject: Supervisor) -> None:
    answers = subject.observe([HONEST, scenario(Misdeed.LAST), METADATA, scenario(Misdeed.LAST)])
    assert answers == ideal.observe([HONEST, scenario(Misdeed.LAST), METADATA, scenario(Misdeed.LAST)])


def test_a_lost_device_is_no_loss_of_the_subject(subject: Supervisor) -> None:
    for _ in range(3):
        subject.observe([scenario(Misdeed.LAST), HONEST])
    assert subject.losses == Losses(answered=7)


def not_started(start: Start) -> str:
    """The sentence of a subject that cannot be started."""
    with tempfile.TemporaryDirectory() as folder, pytest.raises(CannotJudge) as refusal:
        Supervisor(source(start.value), command=COMMAND, pending=Path(folder))
    return str(refusal.value)


def test_a_subject_that_dies_while_starting_is_told_with_its_last_words() -> None:
    expected = "sglang 0.5.18 (./checkout) is no subject: it died while starting."
    assert not_started(Start.DIES) == f"{expected} Its last words: the last words of a subject"


def test_a_subject_that_cannot_import_sglang_is_told_with_the_reason() -> None:
    sentence = not_started(Start.CANNOT_IMPORT)
    assert sentence.startswith(
        "sglang 0.5.18 (./checkout) is no subject: ImportError: no module named sglang. Its last words: "
    )
    assert "\n" not in sentence


@pytest.mark.parametrize("start", [Start.TALKS, Start.SAYS_NOTHING])
def test_a_subject_that_says_no_hello_is_told_in_one_sentence(start: Start) -> None:
    sentence = not_started(start)
    assert sentence.startswith("sglang 0.5.18 (./checkout) is no subject: it ")
    assert "\n" not in sentence


def test_a_subject_that_says_something_else_is_not_said_to_have_died() -> None:
    assert "died" not in not_started(Start.TALKS)


@pytest.fixture(scope="module")
def never_greeted() -> tuple[str, list[int]]:
    """The sentence about a subject that never says hello, and the processes that were started for it."""
    started: list[int] = []
    kill = Supervisor._kill

    def note_and_kill(self: Supervisor) -> None:
        started.extend([self.process.pid] if self.process else [])
        kill(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "START_LIMIT", 0.3)
        patch.setattr(Supervisor, "_kill", note_and_kill)
        return not_started(Start.HANGS), started


def test_a_subject_that_never_says_hello_is_told_with_the_limit(never_greeted: tuple[str, list[int]]) -> None:
    assert never_greeted[0] == "sglang 0.5.18 (./checkout) is no subject: it did not start within 0.3 s."


def test_a_subject_that_never_says_hello_leaves_no_process_behind(never_greeted: tuple[str, list[int]]) -> None:
    assert [ends(process) for process in never_greeted[1]] == [True]


def test_a_command_that_does_not_exist_is_told_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="is no subject"):
        Supervisor(source(), command=["/nonexistent/ssh"], pending=tmp_path)


def test_a_subject_that_cannot_be_started_again_is_told_in_one_sentence(
    subject: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    only_fault(subject, Misdeed.KILLS_TEMPLATE)
    monkeypatch.setattr(subject, "source", source(Start.DIES.value))
    with pytest.raises(CannotJudge, match="is no subject: it died while starting"):
        subject.observe([HONEST])


def test_closing_leaves_no_process_behind(own: Supervisor) -> None:
    processes = [ask(own, Question.TEMPLATE), ask(own, Question.WORKER)]
    own.close()
    assert all(ends(process) for process in processes)


def test_closing_after_a_crash_leaves_no_process_behind(own: Supervisor) -> None:
    template = ask(own, Question.TEMPLATE)
    only_fault(own, Misdeed.KILLED)
    own.close()
    assert ends(template)


def asked(folder: Path) -> list[Scenario]:
    """The scenarios that lie in the one file below `folder`."""
    (path,) = folder.rglob("asked.json")
    return [case.scenario for case in read_cases(path)]


def test_what_is_asked_is_on_disk_before_it_is_sent_and_gone_when_it_is_answered(
    own: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[Scenario]] = []

    def note_and_write(descriptor: int, payload: bytes) -> None:
        seen.append(asked(tmp_path))
        write_frame(descriptor, payload)

    monkeypatch.setattr(module, "write_frame", note_and_write)
    own.observe([HONEST, METADATA])
    own.observe([METADATA])
    assert seen == [[HONEST, METADATA], [METADATA]]
    assert list(tmp_path.rglob("asked.json")) == []


def test_a_scenario_whose_harness_is_killed_stays_on_disk_with_who_was_asked(tmp_path: Path) -> None:
    program = f"""
import os, signal
from tests.subject import test_supervisor as test
test.module.write_frame = lambda descriptor, payload: os.kill(os.getpid(), signal.SIGKILL)
test.Supervisor(test.source(), command=test.COMMAND, pending=test.Path({str(tmp_path)!r})).observe([test.HONEST])
"""
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", program], cwd=root, check=False)
    assert ended.returncode == -signal.SIGKILL
    (left,) = unanswered(tmp_path)
    assert (left.spec, left.device, asked(tmp_path)) == ("./checkout", "emulated", [HONEST])


def test_a_scenario_stays_on_disk_when_the_harness_itself_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int, payload: bytes) -> None:
        raise ZeroDivisionError("a fault of the harness")

    with (
        pytest.raises(ZeroDivisionError),
        Supervisor(source(), command=COMMAND, pending=tmp_path) as supervisor,
        monkeypatch.context() as broken,
    ):
        broken.setattr(module, "write_frame", fail)
        supervisor.observe([HONEST])
    assert asked(tmp_path) == [HONEST]


def test_a_scenario_is_forgotten_when_the_user_interrupts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(descriptor: int, limit: float) -> bytes:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Supervisor(source(), command=COMMAND, pending=tmp_path) as supervisor,
        monkeypatch.context() as interrupted,
    ):
        interrupted.setattr(module, "read_frame", interrupt)
        supervisor.observe([HONEST])
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CannotJudge, match=r"cannot note in .* what the subject is asked: .*; run the harness in"):
        Supervisor(source(), command=COMMAND, pending=tmp_path / "file")


def test_closing_twice_is_closing_once(own: Supervisor) -> None:
    own.close()
    own.close()
