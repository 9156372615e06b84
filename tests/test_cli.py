"""The command line, run in this process: exit statuses, and one sentence on stderr for whatever goes wrong."""

import importlib.machinery
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

from harness import cli
from harness.campaign import run as campaign
from harness.checks.registry import CHECKS
from harness.commands import machine, plans, replay
from harness.doctor import Item
from harness.errors import CannotJudge
from harness.parity.history import read as read_history
from harness.report.document import encode
from harness.report.json import run_document
from harness.scenario import GateScenario, MetadataScenario, Request, Scenario
from harness.scenario.case import SCHEMA, Case, write_case
from harness.scenario.observation import Observation
from harness.shadow.overhead import Overhead
from harness.subject.frames import SubjectInfo
from harness.subject.losses import Losses
from harness.subject.pending import Pending
from harness.subject.source import ASCEND_BACKEND, Source
from tests import ideal
from tests.campaign.planted import block_added_twice
from tests.campaign.planted import subject as planted_subject
from tests.runs import BLOCK_TWICE, made_run

CASE = Case(SCHEMA, MetadataScenario("DFLASH", "target_verify", ((Request(125),),), draft_tokens=4), "kv-lengths")


class Ended(NamedTuple):
    """How a command ended."""

    status: object
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache, no network, no NPU, no installed sglang, and an empty working directory outside any repository."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HARNESS_OFFLINE", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(plans, "has_npu", lambda: False)
    kept = [
        entry for entry in sys.path if entry and importlib.machinery.PathFinder.find_spec("sglang", [entry]) is None
    ]
    monkeypatch.setattr(sys, "path", kept)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def harness(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command as the installed script does."""

    def run(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["harness", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(end.value.code, out, err)

    return run


@pytest.fixture
def sglang(tmp_path: Path) -> Path:
    """A directory that passes for an sglang."""
    for name in ("sglang/__init__.py", ASCEND_BACKEND):
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).touch()
    return tmp_path / "checkout"


@pytest.fixture
def case(tmp_path: Path) -> Path:
    write_case(tmp_path / "case.json", CASE)
    return tmp_path / "case.json"


Observe = Callable[[Sequence[Scenario]], list[Observation]]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Observe], None]:
    """Make commands use an `observe` of this process."""

    def install(observe: Observe) -> None:
        class InProcess:
            def __init__(self, source: Source, device: str, through: Sequence[str] = ()) -> None:
                self.losses, self.faults = Losses(), {}
                self.info = SubjectInfo("ascend", source.release, device, {}, ("DFLASH",), "", source.spec)
                self.overhead = Overhead()

            def __enter__(self) -> "InProcess":
                return self

            def __exit__(self, *error: object) -> None:
                pass

            def observe(self, scenarios: Sequence[Scenario]) -> list[Observation]:
                return observe(scenarios)

        for module in (campaign, replay):
            monkeypatch.setattr(module, "Supervisor", InProcess)

    return install


def refused(scenarios: Sequence[Scenario]) -> list[Observation]:
    """A gate that lets no device through."""
    return [Observation(verdict="only cuda is supported") for _ in scenarios]


def assert_one_sentence(ended: Ended, status: int, words: str) -> None:
    """Nothing on stdout, and on stderr one line with `words`."""
    assert ended.status == status
    assert ended.out == ""
    assert ended.err.startswith("harness: ")
    assert words in ended.err
    assert ended.err.endswith(".\n")
    assert ended.err.count("\n") == 1


def test_help_lists_the_commands(harness: Command) -> None:
    ended = harness("--help")
    assert ended.status == 0
    for command in ("check", "scan", "replay", "bisect", "verdict", "doctor"):
        assert f" {command} " in ended.out


@pytest.mark.parametrize("command", ["check", "scan", "replay", "bisect", "verdict", "doctor"])
def test_every_command_has_help(harness: Command, command: str) -> None:
    ended = harness(command, "--help")
    assert ended.status == 0
    assert f"harness {command}" in ended.out


def test_without_a_command_the_commands_are_listed(harness: Command) -> None:
    ended = harness()
    assert "doctor" in ended.out + ended.err


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["check", "--nonsense"], ["check", "--seed", "-1"], ["check", "--seed", "x"], ["replay"]],
    ids=" ".join,
)
def test_arguments_that_cannot_be_read_are_wrong_use(harness: Command, arguments: list[str]) -> None:
    ended = harness(*arguments)
    assert ended.status == 2
    assert ended.out == ""
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "--group", "nonsense"], "there is no check group 'nonsense': the groups are metadata"),
        (["check", "--profile", "nonsense"], "there is no profile 'nonsense': the profiles are dev, pr, nightly"),
        (["check", "--device", "tpu"], "there is no device 'tpu': the devices are emulated, npu"),
        (["check", "--sglang", "nonsense"], "'nonsense' names no sglang"),
        (["check", "--sglang", ""], "'' names no sglang"),
        (["check", "--sglang", "./nonsense"], "./nonsense is no directory"),
        (["check", "--sglang", "git:nonsense"], "'git:nonsense' names no revision"),
        (["check", "--sglang", "installed"], "no sglang is installed"),
        (["scan", "--group", "nonsense"], "there is no check group 'nonsense'"),
        (["scan", "--profile", "nonsense"], "there is no profile 'nonsense'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use_is_told_in_one_sentence(harness: Command, arguments: list[str], words: str) -> None:
    assert_one_sentence(harness(*arguments), 2, words)


def test_no_sglang_at_all_cannot_be_judged(harness: Command) -> None:
    assert_one_sentence(harness("check"), 3, "no sglang is installed and no release of it is cached")


def test_a_directory_that_is_no_sglang_is_wrong_use(harness: Command, tmp_path: Path) -> None:
    assert_one_sentence(harness("check", "--sglang", tmp_path), 2, "is no sglang")


def test_an_sglang_without_the_backend_is_wrong_use(harness: Command, sglang: Path) -> None:
    (sglang / ASCEND_BACKEND).unlink()
    assert_one_sentence(harness("check", "--sglang", sglang), 2, "has no Ascend backend")


def test_a_release_that_is_not_cached_gives_no_verdict_without_a_network(harness: Command) -> None:
    ended = harness("check", "--sglang", "0.5.18")
    assert ended.status == 3
    assert ended.out == ""
    assert ended.err.splitlines()[-1].startswith("harness: sglang 0.5.18 is not cached")


def test_a_scan_gives_no_verdict_without_a_network_and_a_cache(harness: Command) -> None:
    ended = harness("scan")
    assert ended.status == 3
    assert ended.out == ""
    assert ended.err.splitlines()[-1].startswith("harness: ")
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("arguments", [["check"], ["replay", "CASE"]], ids=" ".join)
def test_an_npu_that_is_not_there_gives_no_verdict(harness: Command, case: Path, arguments: list[str]) -> None:
    named = [str(case) if argument == "CASE" else argument for argument in arguments]
    assert_one_sentence(harness(*named, "--device", "npu"), 3, "no NPU can be used here: `harness doctor` says")


def test_a_case_that_is_missing_is_wrong_use(harness: Command, tmp_path: Path) -> None:
    assert_one_sentence(harness("replay", tmp_path / "none.json"), 2, "none.json: No such file or directory")


def test_a_folder_is_no_case(harness: Command, tmp_path: Path) -> None:
    assert_one_sentence(harness("replay", tmp_path), 2, "cannot read the case")


@pytest.mark.parametrize("kept", [0, 1, 20, -3])
def test_a_case_that_is_cut_short_is_wrong_use(harness: Command, case: Path, kept: int) -> None:
    case.write_bytes(case.read_bytes()[:kept])
    assert_one_sentence(harness("replay", case), 2, "is no case file of this harness, or is cut short")


@pytest.mark.parametrize(
    "data",
    [
        b"\x93\xff\x00",
        b"[]",
        b"null",
        b'{"schema": "one"}',
        b'{"schema": 1}',
        b'{"schema": 1, "scenario": {"kind": "other"}}',
        pytest.param(
            b'{"schema": 1, "more": ' + b"[" * 10**5,
        ),
    ],
    ids=lambda data: data[:30].decode(errors="replace"),
)
def test_what_is_no_case_is_wrong_use(harness: Command, case: Path, data: bytes) -> None:
    case.write_bytes(data)
    assert_one_sentence(harness("replay", case), 2, "is no case file of this harness")


def test_a_case_of_a_newer_harness_is_wrong_use(harness: Command, case: Path) -> None:
    case.write_text(json.dumps({**json.loads(case.read_text()), "schema": SCHEMA + 1, "new": []}))
    assert_one_sentence(harness("replay", case), 2, f"has case schema {SCHEMA + 1}, and this harness reads up to")


def test_a_case_with_a_scenario_that_cannot_be_is_wrong_use(harness: Command, case: Path) -> None:
    document = json.loads(case.read_text())
    document["scenario"]["draft_tokens"] = 0
    case.write_text(json.dumps(document))
    assert_one_sentence(harness("replay", case), 2, "holds a scenario that cannot be")


def test_a_case_of_a_check_that_is_not_there_is_wrong_use(harness: Command, tmp_path: Path) -> None:
    write_case(tmp_path / "odd.json", Case(SCHEMA, GateScenario("npu"), "nonsense"))
    assert_one_sentence(harness("replay", tmp_path / "odd.json"), 2, "names the check 'nonsense'")


def test_a_case_cannot_be_replayed_without_an_sglang(harness: Command, case: Path) -> None:
    assert_one_sentence(harness("replay", case), 3, "no sglang is installed")


def test_the_doctor_shows_this_machine_in_tables(harness: Command) -> None:
    ended = harness("doctor")
    assert ended.status in (0, 3)
    assert "┃ this machine" in ended.out
    assert "┃ subjects" in ended.out
    assert "python" in ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("there", "status"),
    [
        (set(), 3),
        ({"torch"}, 3),
        ({"sglang"}, 3),
        ({"torch", "sglang"}, 0),
        ({"torch", "cached releases"}, 0),
        ({"torch_npu", "CANN", "NPU", "sglang"}, 3),
    ],
    ids=lambda value: "+".join(sorted(value)) or "nothing" if isinstance(value, set) else "",
)
def test_the_doctor_ends_with_3_where_no_subject_can_run(
    harness: Command, monkeypatch: pytest.MonkeyPatch, there: set[str], status: int
) -> None:
    names = ("torch", "torch_npu", "CANN", "NPU", "sglang", "cached releases")
    monkeypatch.setattr(machine, "examine", lambda: [Item(name, name in there, "[detail]") for name in names])
    ended = harness("doctor")
    assert ended.status == status
    assert ("ready" in ended.out) == (status == 0)
    assert "[detail]" in ended.out


Use = Callable[[Observe], None]


def test_a_check_that_finds_nothing_ends_with_0(harness: Command, use: Use, sglang: Path) -> None:
    use(ideal.observe)
    ended = harness("check", "--sglang", sglang, "--group", "guard", "--fresh")
    assert ended.status == 0
    assert ended.out.splitlines()[-1] == "All checks ran and passed."
    assert not Path(".harness").exists()


def test_a_check_that_finds_something_ends_with_1(harness: Command, use: Use, sglang: Path) -> None:
    use(refused)
    ended = harness("check", "--sglang", sglang, "--group", "guard", "--fresh")
    assert ended.status == 1
    assert "device-gate:DFLASH:supported:refused" in ended.out


def test_a_subject_that_cannot_be_started_ends_with_3(
    harness: Command, monkeypatch: pytest.MonkeyPatch, sglang: Path
) -> None:
    def refuse(source: Source, device: str, through: Sequence[str]) -> None:
        raise CannotJudge("sglang is no subject: it died while starting.")

    monkeypatch.setattr(campaign, "Supervisor", refuse)
    ended = harness("check", "--sglang", sglang)
    assert ended.status == 3
    assert "UNKNOWN subject: sglang is no subject: it died while starting." in ended.out
    assert ended.out.splitlines()[-1] == "No verdict: see UNKNOWN above."


def test_a_finding_is_replayed_by_the_command_that_is_shown(harness: Command, use: Use, sglang: Path) -> None:
    use(refused)
    shown = harness("check", "--sglang", sglang, "--group", "guard", "--fresh").out
    lines = [line for line in shown.splitlines() if line.startswith("  replay: ")]
    (line,) = [line for line in lines if "device-gate-DFLASH-supported-refused" in line]
    ended = harness(*shlex.split(line.removeprefix("  replay: "))[1:])
    assert ended.status == 1
    assert "device-gate:DFLASH:supported:refused" in ended.out


@pytest.mark.parametrize(
    ("observe", "status"), [(ideal.observe, 0), (planted_subject(block_added_twice), 1)], ids=["right", "wrong"]
)
def test_a_replay_ends_with_the_verdict_of_its_check(
    harness: Command, use: Use, sglang: Path, case: Path, observe: Observe, status: int
) -> None:
    use(observe)
    ended = harness("replay", case, "--sglang", sglang)
    assert ended.status == status
    assert "kv-lengths" in ended.out


def test_a_replay_shows_several_sglangs_side_by_side(harness: Command, use: Use, sglang: Path, case: Path) -> None:
    use(ideal.observe)
    for name in ("one", "two"):
        Path(name).symlink_to(sglang)
    ended = harness("replay", case, "--sglang", "./one", "--sglang", "./two")
    assert ended.status == 0
    headings = [line for line in ended.out.splitlines() if "(./one)" in line]
    assert ["(./two)" in line for line in headings] == [True, True]


def test_a_case_without_a_check_is_judged_by_all_that_apply(
    harness: Command, use: Use, sglang: Path, tmp_path: Path
) -> None:
    use(ideal.observe)
    write_case(tmp_path / "any.json", Case(SCHEMA, CASE.scenario))
    ended = harness("replay", tmp_path / "any.json", "--sglang", sglang)
    assert ended.status == 0
    applying = [check.id for check in CHECKS.values() if check.applies(CASE.scenario)]
    assert [check_id for check_id in applying if f"│ {check_id} " not in ended.out] == []


@pytest.fixture
def left(sglang: Path) -> str:
    """The replay command of a frame that an earlier harness has left unanswered."""
    pending = Pending(Source(str(sglang), "git", str(sglang), "0.5.18"), "emulated")
    pending.write([CASE.scenario, GateScenario("npu")])
    pending.lock.close()
    return f"harness replay {pending.path} --sglang {sglang}"


def test_what_an_earlier_harness_left_unanswered_is_told_with_its_replay_command(
    harness: Command, use: Use, sglang: Path, left: str
) -> None:
    use(ideal.observe)
    ended = harness("check", "--sglang", sglang, "--group", "guard", "--fresh")
    folder = Path(shlex.split(left)[2]).parent
    assert ended.err.splitlines()[0] == (
        f"an earlier run ended before sglang {sglang} had answered: `{left}` asks again; delete {folder} to forget it."
    )
    assert ended.status == 0


def test_of_several_cases_a_replay_shows_those_that_did_not_pass(harness: Command, use: Use, left: str) -> None:
    use(
        lambda scenarios: [
            refused([one])[0] if one == GateScenario("npu") else ideal.observation(one) for one in scenarios
        ]
    )
    ended = harness(*shlex.split(left)[1:])
    assert ended.status == 1
    assert "start DFLASH with device='npu'" in ended.out
    assert "DFLASH target_verify" not in ended.out
    assert "2 scenarios were replayed; what is not shown above was answered and passed." in ended.out


def test_a_command_that_cannot_be_read_is_wrong_use(harness: Command) -> None:
    assert_one_sentence(harness("check", "--through", "'open"), 2, '--through "\'open" is no command')


def test_json_and_junit_are_written_where_they_are_asked_for(
    harness: Command, use: Use, sglang: Path, tmp_path: Path
) -> None:
    use(refused)
    files = [tmp_path / "new" / name for name in ("run.json", "run.xml")]
    harness("check", "--sglang", sglang, "--group", "guard", "--fresh", "--json", files[0], "--junit", files[1])
    assert json.loads(files[0].read_text())["status"] == 1
    assert ElementTree.parse(files[1]).getroot().get("failures") == "3"


def test_a_file_that_cannot_be_written_is_told_in_one_sentence_after_the_result(
    harness: Command, use: Use, sglang: Path
) -> None:
    use(ideal.observe)
    ended = harness(
        "check", "--sglang", sglang, "--group", "guard", "--fresh", "--json", sglang / "sglang/__init__.py/x"
    )
    assert ended.status == 3
    assert "All checks ran and passed." in ended.out
    assert ended.err.splitlines()[-1].startswith("harness: cannot write ")


def test_a_run_is_shown_although_its_cases_cannot_be_written(harness: Command, use: Use, sglang: Path) -> None:
    use(refused)
    Path(".harness").touch()
    ended = harness("check", "--sglang", sglang, "--group", "guard", "--fresh")
    assert ended.err.splitlines()[-1].startswith("harness: cannot write ")
    assert "device-gate:DFLASH:supported:refused" in ended.out


def test_progress_goes_to_stderr_alone(harness: Command, use: Use, sglang: Path) -> None:
    use(ideal.observe)
    ended = harness("check", "--sglang", sglang, "--group", "guard", "--fresh")
    assert ended.out.startswith("sglang unknown (")


def test_an_interrupted_command_has_no_status_of_a_verdict(harness: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(machine, "doctor", interrupt)
    ended = harness("doctor")
    assert ended.status not in (0, 1, 2, 3)
    assert "Traceback" not in ended.err


def test_a_fault_of_the_harness_itself_has_not_the_status_of_findings(
    harness: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a fault of the harness")

    monkeypatch.setattr(machine, "doctor", fail)
    assert harness("doctor").status == 3


def closed_pipe(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """A command in a process of its own, whose stdout nobody reads."""
    root = Path(cli.__file__).parents[1]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return subprocess.run(
            [sys.executable, "-m", "harness", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root)},
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)


@pytest.fixture(scope="module")
def unheard() -> subprocess.CompletedProcess[bytes]:
    return closed_pipe("doctor")


def test_a_closed_pipe_is_quiet(unheard: subprocess.CompletedProcess[bytes]) -> None:
    assert unheard.stderr == b""


def test_a_closed_pipe_has_not_the_status_of_findings(unheard: subprocess.CompletedProcess[bytes]) -> None:
    assert unheard.returncode != 1


def test_a_history_grows_by_a_night_with_all_its_results_and_is_shown(harness: Command, tmp_path: Path) -> None:
    results = [tmp_path / "good.json", tmp_path / "bad.json"]
    for path, run in zip(results, (made_run(), made_run(BLOCK_TWICE)), strict=True):
        path.write_bytes(encode(run_document(run)))
    file = tmp_path / "history.jsonl"

    for added in (results[:1], results):
        ended = harness("history", "--file", str(file), *(word for path in added for word in ("--add", str(path))))
        assert ended.status == 0
    assert [night.passed for night in read_history(file)] == [True, False]
    assert "(failed)" in ended.out


def test_a_history_that_does_not_exist_is_wrong_use(harness: Command, tmp_path: Path) -> None:
    assert_one_sentence(harness("history", "--file", str(tmp_path / "none")), 2, "there is no history at")


def test_a_report_is_written_of_what_other_commands_wrote(harness: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes(encode(run_document(made_run(BLOCK_TWICE))))
    assert harness("report", str(tmp_path / "run.json"), "--out", str(tmp_path / "r.html")).status == 0
    assert BLOCK_TWICE.message in (tmp_path / "r.html").read_text()


def test_a_report_of_no_document_is_wrong_use_and_leaves_the_last_report(harness: Command, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "r.html").write_text("the last one")
    refused = harness("report", str(tmp_path / "run.json"), "--out", str(tmp_path / "r.html"))
    assert_one_sentence(refused, 2, "is no document of the harness")
    assert (tmp_path / "r.html").read_text() == "the last one"
