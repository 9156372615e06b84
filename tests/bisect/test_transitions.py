"""Where findings come and go, written as rows of verdicts."""

import pytest
from msgspec.structs import replace

from harness.bisect.transitions import State, Transition, all_findings, state, transitions
from harness.campaign.run import Run
from harness.checks.finding import Finding
from tests.runs import BLOCK_TWICE, REFUSED, info, made_run

FINGERPRINT = BLOCK_TWICE.fingerprint


def history(verdicts: str, finding: Finding = BLOCK_TWICE) -> list[Run]:
    """One run for each word, of releases 1, 2, …: bad, good, unknown or absent."""

    def one(release: str, verdict: str) -> Run:
        match verdict:
            case "bad":
                return made_run(finding, subject=info(release))
            case "good":
                return made_run(subject=info(release))
            case "unknown":
                return made_run(subject=info(release), unknown={"subject": "lost"})
            case "absent":
                return made_run(subject=info(release, capabilities=["EAGLE"]))
        raise AssertionError(verdict)

    return [one(str(number), verdict) for number, verdict in enumerate(verdicts.split(), start=1)]


def broken(good: str, bad: str, *skipped: str) -> Transition:
    return Transition(FINGERPRINT, "broken", good, bad, skipped)


def fixed(bad: str, good: str, *skipped: str) -> Transition:
    return Transition(FINGERPRINT, "fixed", good, bad, skipped)


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("", []),
        ("bad", []),
        ("good good good", []),
        ("bad bad bad", []),
        ("good bad", [broken("1", "2")]),
        ("bad good", [fixed("1", "2")]),
        ("good good bad bad", [broken("2", "3")]),
        ("bad good bad good", [fixed("1", "2"), broken("2", "3"), fixed("3", "4")]),
        ("good bad bad good good bad", [broken("1", "2"), fixed("3", "4"), broken("5", "6")]),
    ],
)
def test_every_change_between_neighbours_is_a_transition(verdicts: str, expected: list[Transition]) -> None:
    assert transitions(history(verdicts)) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("good unknown bad", [broken("1", "3", "2")]),
        ("good unknown absent unknown bad", [broken("1", "5", "2", "3", "4")]),
        ("bad unknown good absent bad", [fixed("1", "3", "2"), broken("3", "5", "4")]),
        ("good good unknown bad good", [broken("2", "4", "3"), fixed("4", "5")]),
    ],
)
def test_what_lies_between_and_could_not_be_judged_is_skipped_and_named(
    verdicts: str, expected: list[Transition]
) -> None:
    assert transitions(history(verdicts)) == expected


@pytest.mark.parametrize("verdicts", ["unknown bad", "absent bad", "bad unknown", "bad absent absent", "unknown"])
def test_an_end_that_could_not_be_judged_is_no_change(verdicts: str) -> None:
    assert transitions(history(verdicts)) == []


@pytest.mark.parametrize(("verdicts", "skipped"), [("good unknown good bad", ()), ("absent good bad", ())])
def test_what_could_not_be_judged_elsewhere_is_not_named(verdicts: str, skipped: tuple[str, ...]) -> None:
    (change,) = transitions(history(verdicts))
    assert change.skipped == skipped


def test_every_finding_has_transitions_of_its_own() -> None:
    runs = [
        made_run(REFUSED, subject=info("1")),
        made_run(BLOCK_TWICE, subject=info("2")),
        made_run(BLOCK_TWICE, REFUSED, subject=info("3")),
    ]
    assert transitions(runs) == [
        Transition(REFUSED.fingerprint, "fixed", "2", "1"),
        Transition(REFUSED.fingerprint, "broken", "2", "3"),
        Transition(FINGERPRINT, "broken", "1", "2"),
    ]


def test_findings_of_all_runs_are_collected_once() -> None:
    runs = [made_run(BLOCK_TWICE), made_run(BLOCK_TWICE, REFUSED), made_run()]
    assert all_findings(runs) == {FINGERPRINT: BLOCK_TWICE, REFUSED.fingerprint: REFUSED}


@pytest.mark.parametrize(
    ("verdict", "expected"), [("bad", "wrong"), ("good", "right"), ("unknown", "unknown"), ("absent", "absent")]
)
def test_a_run_has_one_state_for_a_finding(verdict: str, expected: State) -> None:
    (run,) = history(verdict)
    assert state(run, BLOCK_TWICE) == expected


def test_a_finding_is_certain_whatever_could_not_be_judged() -> None:
    run = made_run(BLOCK_TWICE, unknown={"subject": "lost", "kv-lengths": "crash"})
    assert state(run, BLOCK_TWICE) == "wrong"


def test_a_check_that_could_not_be_judged_is_unknown_for_its_findings_alone() -> None:
    run = made_run(unknown={"kv-lengths": "crash"})
    assert state(run, BLOCK_TWICE) == "unknown"
    assert state(run, REFUSED) == "right"


def test_another_finding_of_the_same_check_and_path_may_hide_one() -> None:
    other = replace(BLOCK_TWICE, fingerprint=BLOCK_TWICE.fingerprint.replace("block-added-again", "too-short"))
    assert state(made_run(other), BLOCK_TWICE) == "unknown"


def test_a_finding_of_another_path_hides_none() -> None:
    other = replace(BLOCK_TWICE, fingerprint=BLOCK_TWICE.fingerprint.replace("eager", "graph"), executor="graph")
    assert state(made_run(other), BLOCK_TWICE) == "right"


def test_a_finding_without_speculation_is_absent_nowhere() -> None:
    plain = replace(BLOCK_TWICE, scenario=replace(BLOCK_TWICE.scenario, algorithm="NONE", mode="decode"))
    assert state(made_run(subject=info(capabilities=[])), plain) == "right"


def test_a_finding_without_host_lengths_is_absent_where_these_are_never_missing() -> None:
    hostless = replace(BLOCK_TWICE, scenario=replace(BLOCK_TWICE.scenario, host_view="bound"))
    assert state(made_run(), hostless) == "absent"
    assert state(made_run(subject=info(capabilities=["DFLASH", "absent-host"])), hostless) == "right"
