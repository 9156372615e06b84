"""The JSON documents: every key that readers rely on, and nothing that JSON cannot hold."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harness.bisect.transitions import transitions
from harness.campaign.run import Run
from harness.campaign.tally import Counts
from harness.report.document import encode
from harness.report.json import run_document, scan_document
from harness.report.judgement import judge
from harness.scenario.observation import Fault
from harness.shadow.overhead import Overhead
from harness.subject.losses import Losses, LostScenario
from tests.runs import BLOCK_TWICE, REFUSED, VERIFY, info, made_run

RUN = made_run(BLOCK_TWICE, REFUSED, subject=info(revision="abc"), unknown={"window-mask": "it never ran"})


def read(run: Run) -> dict[str, Any]:
    """The document of `run` as a reader gets it."""
    document: dict[str, Any] = json.loads(encode(run_document(run)))
    return document


def test_a_run_has_these_keys() -> None:
    expected = {"schema", "subject", "profile", "seed", "status", "checks", "findings", "unknown"}
    assert set(read(RUN)) >= expected
    assert read(RUN)["schema"] == 1


def test_the_subject_is_named_with_its_versions() -> None:
    subject = read(RUN)["subject"]
    assert subject == {
        "kind": "ascend",
        "release": "0.5.18",
        "device": "emulated",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "torch_npu": "emulated", "cann": "emulated"},
        "capabilities": ["DFLASH", "EAGLE"],
        "revision": "abc",
        "spec": "0.5.18",
        "dtype": "float32",
    }


LOST = LostScenario(VERIFY, Fault("crash", "killed", "first\nlast words\n"))


def test_a_run_tells_its_losses_and_what_costs_the_subject() -> None:
    document = read(replace(made_run(), losses=Losses(10, 7, 0, 3, "crash: killed"), lost=(LOST,)))
    counts = {"answered": 10, "crashes": 7, "costly": 0, "unreproduced": 3, "last": "crash: killed"}
    assert document["losses"] == counts
    (lost,) = document["lost"]
    assert lost["fault"] == {"cause": "crash", "reason": "killed", "stderr": "first\nlast words\n"}
    assert lost["scenario"]["draft_tokens"] == VERIFY.draft_tokens
    assert lost["replay"].startswith("harness replay .harness/lost/0.5.18/crash-")


def test_profile_and_seed_are_those_of_the_run() -> None:
    assert (read(RUN)["profile"], read(RUN)["seed"]) == ("dev", 7)


def test_every_check_has_its_counts() -> None:
    run = made_run(checks={"kv-lengths": Counts(ran=3, failed=2, unknown=1), "device-gate": Counts()})
    assert read(run)["checks"] == {
        "kv-lengths": {"ran": 3, "failed": 2, "unknown": 1},
        "device-gate": {"ran": 0, "failed": 0, "unknown": 0},
    }


def test_a_finding_has_what_it_takes_to_understand_and_repeat_it() -> None:
    finding = read(RUN)["findings"][0]
    keys = ("check", "fingerprint", "algorithm", "executor", "mode", "message", "meaning")
    assert [finding[key] for key in keys] == [getattr(BLOCK_TWICE, key) for key in keys]
    assert finding["replay"].startswith("harness replay .harness/findings/0.5.18-abc/kv-lengths-")
    expected = judge(BLOCK_TWICE.fingerprint)
    assert finding["judgement"] == {"kind": expected.kind, "why": expected.why, "reports": list(expected.reports)}


def test_the_scenario_of_a_finding_is_the_one_of_a_case_file() -> None:
    scenario = read(RUN)["findings"][0]["scenario"]
    assert scenario["kind"] == "metadata"
    assert scenario["rounds"] == [[{"prefix": 125, "row": 1, "new_tokens": 0, "host_lag": 0}]]
    assert scenario["draft_tokens"] == VERIFY.draft_tokens
    gate = {"kind": "gate", "device": "npu", "algorithm": "DFLASH", "draft": None, "options": []}
    assert read(RUN)["findings"][1]["scenario"] == gate


@pytest.mark.parametrize(
    ("run", "status"),
    [(made_run(), 0), (RUN, 1), (made_run(unknown={"subject": "lost"}), 3)],
    ids=["passed", "findings", "unknown"],
)
def test_the_status_is_that_of_the_command(run: Run, status: int) -> None:
    assert read(run)["status"] == status


def test_what_could_not_be_judged_is_told_with_its_reason() -> None:
    assert read(RUN)["unknown"] == {"window-mask": "it never ran"}


def test_what_the_sanitizer_cost_is_told_in_seconds() -> None:
    run = msgspec.structs.replace(made_run(), overhead=Overhead(12.0, 2.0))
    assert read(run)["overhead"] == {"watched": 12.0, "sanitizer": 2.0}


def test_a_scan_has_runs_and_transitions() -> None:
    runs = [
        made_run(subject=info("1")),
        made_run(unknown={"subject": "lost"}, subject=info("2")),
        made_run(BLOCK_TWICE),
    ]
    document = json.loads(encode(scan_document(runs, transitions(runs))))
    assert set(document) == {"kind", "schema", "runs", "states", "transitions"}
    assert document["runs"] == [read(run) for run in runs]
    assert document["transitions"] == [
        {
            "fingerprint": BLOCK_TWICE.fingerprint,
            "change": "broken",
            "good": "1",
            "bad": "0.5.18",
            "skipped": ["2"],
            "compare": "https://github.com/sgl-project/sglang/compare/v1...v0.5.18",
        }
    ]


def test_a_document_is_plain_data() -> None:
    def plain(value: Any) -> bool:
        if isinstance(value, dict):
            return all(isinstance(key, str) and plain(one) for key, one in value.items())
        if isinstance(value, list | tuple):
            return all(plain(one) for one in value)
        return value is None or isinstance(value, str | int | float)

    assert plain(json.loads(encode(scan_document([RUN], []))))


def test_a_document_ends_in_a_line_feed_and_keeps_any_text() -> None:
    run = made_run(unknown={"subject": 'a "quoted" \x1b[31mgröße\n'})
    assert encode(run_document(run)).endswith(b"}\n")
    assert read(run)["unknown"] == run.unknown
