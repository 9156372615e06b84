"""The catalogue of public reports: all are there, name what exists, and are on the page."""

import re
from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.campaign.run import ATTENTION_GROUPS
from harness.checks.registry import CHECKS
from harness.errors import UsageError
from harness.inventory.catalogue import page
from harness.inventory.reports import STANDINGS, Expression, Report, Wait, problems, reports
from harness.scenario.attention import attention_scenarios
from harness.scenario.case import Case
from harness.scenario.pinned import pinned_cases
from harness.scenario.strategies import scenarios
from tests.ideal import CELLS, CONTRACT_EXAMPLE, drawn

REPORTS = reports()
PINNED = pinned_cases()
SENTINELS = {name: case for name, case in PINNED.items() if not case.fingerprint}

#: By section: the last number, and the numbers below it that stand for no report.
SECTIONS = {
    "A": (25, {7, 12, 23}),
    "B": (39, {17, 19, 28}),
    "C": (42, {10, 15}),
    "D": (28, {19, 20}),
}
IDS = [
    f"{name}{number}" for name, (last, none) in SECTIONS.items() for number in range(1, last + 1) if number not in none
]
DRAWN = sorted(
    {(one.check, one.cell) for report in REPORTS for one in report.expressed_by if one.cell in map(str, CELLS)}
)
ON_SESSIONS = {one.check for report in REPORTS for one in report.expressed_by if one.cell.startswith("session ")}

FIRST = REPORTS[0]
SENTINEL = Case(1, CONTRACT_EXAMPLE, reports=("sglang#1",))


def planted(**changes: object) -> list[str]:
    """What is wrong with a catalogue whose first report is changed."""
    return problems((replace(FIRST, **changes), *REPORTS[1:]), PINNED)


def test_every_report_stands_once() -> None:
    assert Counter(IDS) == Counter(report.id for report in REPORTS)


def test_every_report_names_what_exists() -> None:
    assert problems(REPORTS, PINNED) == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"expressed_by": (Expression(case="gone"),)}, "A1: there is no pinned case gone"),
        ({"expressed_by": (Expression(check="gone", cell=str(CELLS[0])),)}, "A1: there is no check gone"),
        ({"expressed_by": (Expression(check="builds", cell="gone"),)}, "A1: there is no cell gone"),
        (
            {"expressed_by": (Expression(check="builds"),)},
            "is neither a case, nor a check with its cell, nor a cell of the acceptance table",
        ),
        ({"expressed_by": (Expression(accepts="gone"),)}, "A1: there is no cell gone of the acceptance table"),
        ({"expressed_by": (Expression(case="gone", accepts="EAGLE graph"),)}, "is neither a case, nor a check"),
        ({"waits_for": (Wait("gone"),)}, "A1: there is no law gone"),
        ({"expressed_by": (), "waits_for": ()}, "A1: must be expressed or wait for a law, or else say why not"),
        ({"why_not": "It cannot be."}, "A1: must be expressed or wait for a law, or else say why not"),
        ({"id": "A2"}, "A2 stands 2 times"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_exist_is_told(changes: dict[str, object], sentence: str) -> None:
    assert any(sentence in problem for problem in planted(**changes))


def test_a_sentinel_that_no_report_names_is_told() -> None:
    assert problems(REPORTS, {**PINNED, "stray": SENTINEL}) == ["the sentinel stray belongs to no report"]


def test_a_sentinel_that_names_other_reports_is_told() -> None:
    report = Report("A1", ("sglang#2",), ("M",), "a trigger", (Expression(case="watch"),))

    assert problems((report,), {"watch": SENTINEL}) == ["A1: the sentinel watch names other reports: sglang#1"]


def test_every_thread_names_a_project_and_a_number() -> None:
    threads = [thread for report in REPORTS for thread in report.threads]
    assert [thread for thread in threads if not re.fullmatch(r"sglang#\d+|[\w.-]+/[\w.-]+#\d+", thread)] == []


@pytest.mark.parametrize("case", SENTINELS.values(), ids=SENTINELS.keys())
def test_the_check_of_a_sentinel_speaks_of_it(case: Case) -> None:
    assert case.check == "" or CHECKS[case.check].applies(case.scenario)


@pytest.mark.parametrize(("check", "cell"), DRAWN, ids=lambda name: name.replace(" ", "-"))
def test_a_check_speaks_of_batches_drawn_for_its_cell(check: str, cell: str) -> None:
    (named,) = (one for one in CELLS if str(one) == cell)
    strategy = attention_scenarios if CHECKS[check].group in ATTENTION_GROUPS else scenarios

    assert any(CHECKS[check].applies(scenario) for scenario in drawn(named, 8, strategy))


def test_only_checks_of_sessions_are_named_with_a_server() -> None:
    assert {CHECKS[check].group for check in ON_SESSIONS} == {"sessions"}


def test_a_report_counts_where_it_stands_first() -> None:
    report = Report("A1", (), ("M",), "a trigger")
    case, check, accepts = Expression(case="one"), Expression(check="builds", cell="two"), Expression(accepts="three")
    wait = (Wait("session-runs", "graphs"),)
    standings = (
        replace(report, expressed_by=(accepts, check, case), waits_for=wait).standing,
        replace(report, expressed_by=(accepts, check), waits_for=wait).standing,
        replace(report, expressed_by=(accepts,), waits_for=wait).standing,
        replace(report, waits_for=wait).standing,
        replace(report, why_not="It cannot be.").standing,
    )

    assert standings == STANDINGS


def test_the_committed_page_is_the_computed_one() -> None:
    committed = Path(__file__).parents[1] / "docs" / "catalogue.md"

    assert committed.read_text(encoding="utf-8") == page(), "run `python -m harness.inventory`"


def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalogue.json").write_text('[{"id": "A1"}]')

    with pytest.raises(UsageError, match=r"catalogue\.json is no catalogue of reports: .*threads"):
        reports(tmp_path / "catalogue.json")
