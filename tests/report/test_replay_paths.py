"""Case files and replay commands of findings, whatever a spec looks like."""

import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.report.replay import case_path, command, lost_command, lost_path, write_cases
from harness.scenario.case import read_case
from harness.scenario.observation import Fault
from harness.subject.losses import LostScenario
from tests.runs import BLOCK_TWICE, REFUSED, VERIFY, info, made_run

FOLDER = Path("findings")

ODD_SPECS = [
    "/tmp/two words",
    "/tmp/$HOME",
    "/tmp/a;touch b",
    "/tmp/`id`",
    '/tmp/"quoted"',
    "~/sglang",
    "git:/tmp/a b@main",
    "./dir[1]",
    "/tmp/*",
    "/tmp/new\nline",
    "/tmp/größe",
]


def test_a_release_has_a_folder_and_a_fingerprint_a_file() -> None:
    expected = FOLDER / "0.5.18" / "kv-lengths-seq_lens_cpu_int-DFLASH-eager-target_verify-block-added-again.json"
    assert case_path(made_run(BLOCK_TWICE), BLOCK_TWICE, FOLDER) == expected


def test_a_revision_has_a_folder_of_its_own() -> None:
    run = made_run(BLOCK_TWICE, subject=info("0.5.18", revision="0123456789abcdef"))
    assert case_path(run, BLOCK_TWICE, FOLDER).parent == FOLDER / "0.5.18-0123456789ab"


def test_two_fingerprints_have_two_files() -> None:
    run = made_run(BLOCK_TWICE, REFUSED)
    assert case_path(run, BLOCK_TWICE, FOLDER) != case_path(run, REFUSED, FOLDER)


@pytest.mark.parametrize("odd", [*ODD_SPECS, "../../escape", "/etc/passwd", "a/../../b", "null\0byte"])
def test_no_spec_and_no_release_leads_out_of_the_folder(odd: str) -> None:
    for subject in (info(release="", spec=odd), info(release=odd)):
        path = case_path(made_run(subject=subject), replace(BLOCK_TWICE, fingerprint=odd), FOLDER)
        assert path.parent.parent == FOLDER
        assert path.name.endswith(".json")


@pytest.mark.parametrize("odd", ["..", "...", "..x"])
def test_dots_lead_not_out_of_the_folder_either(odd: str) -> None:
    path = case_path(made_run(subject=info(release="", spec=odd)), BLOCK_TWICE, FOLDER)
    assert path.resolve().is_relative_to(FOLDER.resolve())


def test_a_command_replays_the_case_on_the_same_sglang() -> None:
    path = case_path(made_run(BLOCK_TWICE), BLOCK_TWICE, FOLDER)
    assert command(made_run(BLOCK_TWICE), BLOCK_TWICE, FOLDER) == f"harness replay {path} --sglang 0.5.18"


def test_a_command_names_a_device_that_is_not_emulated() -> None:
    run = made_run(BLOCK_TWICE, subject=info(device="Ascend910B3"))
    assert command(run, BLOCK_TWICE).endswith(" --sglang 0.5.18 --device npu")


@pytest.mark.parametrize("spec", ["0.5.18", "installed", "./checkout", "/srv/sglang", "git:/srv/sglang@v0.5.18"])
def test_a_plain_spec_is_not_quoted(spec: str) -> None:
    assert command(made_run(subject=info(spec=spec)), BLOCK_TWICE).endswith(f" --sglang {spec}")


@pytest.mark.parametrize(
    "spec",
    [*ODD_SPECS, "/tmp/it's"],
)
def test_a_shell_reads_an_odd_spec_as_one_word(spec: str) -> None:
    words = shlex.split(command(made_run(subject=info(spec=spec)), BLOCK_TWICE, FOLDER))
    assert words[:2] == ["harness", "replay"]
    assert words[3:] == ["--sglang", spec]


def test_every_finding_is_written_as_a_case_that_can_be_read(tmp_path: Path) -> None:
    run = made_run(BLOCK_TWICE, REFUSED)
    write_cases(run, tmp_path)
    for finding in (BLOCK_TWICE, REFUSED):
        case = read_case(case_path(run, finding, tmp_path))
        assert (case.scenario, case.check, case.fingerprint) == (finding.scenario, finding.check, finding.fingerprint)
        assert (case.sglang, case.note) == ("0.5.18", finding.message)


def test_nothing_is_written_without_findings(tmp_path: Path) -> None:
    write_cases(made_run(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_costs_the_subject_is_written_as_a_case_that_can_be_read(tmp_path: Path) -> None:
    losses = [LostScenario(one, Fault("crash", "killed", "words\n")) for one in (VERIFY, REFUSED.scenario)]
    run = replace(made_run(), lost=tuple(losses))
    write_cases(run, tmp_path, tmp_path)
    for lost in losses:
        path = lost_path(run, lost, tmp_path)
        case = read_case(path)
        assert (case.scenario, case.check, case.note) == (lost.scenario, "", "crash: killed\nwords")
        assert lost_command(run, lost, tmp_path) == f"harness replay {path} --sglang 0.5.18"
