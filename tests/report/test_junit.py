"""JUnit XML: what a CI reads of a run."""

from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from harness.campaign.run import Run
from harness.campaign.tally import Counts
from harness.report.junit import junit
from harness.subject.losses import Losses
from tests.runs import BLOCK_TWICE, REFUSED, info, made_run


def read(run: Run) -> ElementTree.Element:
    return ElementTree.fromstring(junit(run))


def counts(run: Run) -> tuple[str | None, ...]:
    return tuple(read(run).get(name) for name in ("tests", "failures", "errors"))


def case(run: Run, name: str) -> ElementTree.Element:
    (found,) = [one for one in read(run) if one.get("name") == name]
    return found


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (made_run(), ("2", "0", "0")),
        (made_run(BLOCK_TWICE), ("2", "1", "0")),
        (made_run(BLOCK_TWICE, REFUSED), ("2", "2", "0")),
        (made_run(BLOCK_TWICE, unknown={"device-gate": "crash"}), ("2", "1", "1")),
        (made_run(checks={}, unknown={"subject": "lost"}), ("1", "0", "1")),
        (made_run(checks={}), ("0", "0", "0")),
    ],
    ids=["passed", "one finding", "two findings", "finding and unknown", "no subject", "nothing"],
)
def test_the_suite_counts_checks_findings_and_unknowns(run: Run, expected: tuple[str, ...]) -> None:
    assert counts(run) == expected


def test_the_counts_are_those_of_the_elements() -> None:
    run = made_run(BLOCK_TWICE, REFUSED, unknown={"device-gate": "crash", "subject": "lost"})
    suite = read(run)
    elements = tuple(str(len(list(suite.iter(name)))) for name in ("testcase", "failure", "error"))
    assert counts(run) == elements == ("3", "2", "2")


def test_the_suite_is_named_after_the_sglang() -> None:
    assert read(made_run()).get("name") == "harness sglang 0.5.18"
    assert read(made_run(subject=info(release="", spec="./checkout"))).get("name") == "harness sglang ./checkout"


def test_every_check_is_a_case_of_its_group() -> None:
    assert case(made_run(), "kv-lengths").get("classname") == "harness.metadata"
    assert case(made_run(), "device-gate").get("classname") == "harness.guard"


def test_a_check_that_passed_has_no_failure() -> None:
    assert list(case(made_run(BLOCK_TWICE), "device-gate")) == []


def test_a_finding_is_a_failure_with_message_meaning_and_replay() -> None:
    (failure,) = case(made_run(BLOCK_TWICE), "kv-lengths")
    assert failure.tag == "failure"
    assert failure.get("type") == BLOCK_TWICE.fingerprint
    assert failure.get("message") == BLOCK_TWICE.message
    lines = (failure.text or "").splitlines()
    assert lines[:2] == [BLOCK_TWICE.message, BLOCK_TWICE.meaning]
    assert lines[2].startswith("harness replay ")


def test_a_lost_subject_is_a_case_with_an_error() -> None:
    (error,) = case(made_run(unknown={"subject": "the subject was lost"}), "subject")
    assert (error.tag, error.get("type"), error.get("message")) == ("error", "UNKNOWN", "the subject was lost")


def test_what_xml_gives_a_meaning_is_kept_as_text() -> None:
    (error,) = case(made_run(checks={"kv-lengths": Counts()}, unknown={"subject": '<a href="b">&amp;</a>'}), "subject")
    assert error.get("message") == '<a href="b">&amp;</a>'


@pytest.mark.parametrize("odd", ["\x1b[31mRuntimeError\x1b[0m", "null\0byte", "bell\a"])
def test_what_xml_cannot_hold_breaks_nothing(odd: str) -> None:
    assert counts(made_run(unknown={"subject": odd})) == ("3", "0", "1")


def test_losses_by_chance_are_told_and_are_no_failure() -> None:
    run = replace(made_run(), losses=Losses(10, 3, 0, 3, "crash: killed"))
    assert counts(run) == ("2", "0", "0")
    said = read(run).findtext("system-out")
    assert said is not None
    assert said.startswith("The subject was lost 3 times by chance (the last one crash: killed)")


def test_a_run_without_losses_tells_of_none() -> None:
    assert read(made_run()).find("system-out") is None
