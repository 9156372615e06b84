"""The faults of the catalogue: each is caught on the real source by the check that it names, the cheapest that can."""

from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from msgspec.structs import replace

from harness.checks.registry import CHECKS
from harness.errors import UsageError
from harness.inventory.reports import reports
from harness.mutate import study as study_module
from harness.mutate.arguments import arguments
from harness.mutate.faults import KnownFault, KnownFaults, known_faults, said
from harness.mutate.scenes import GROUPS, Draw, asked
from harness.mutate.study import study
from harness.report.power import power_page
from harness.scenario import MetadataScenario
from harness.scenario.pinned import pinned_cases
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor

KNOWN = known_faults()
PINNED = pinned_cases()


@pytest.fixture(scope="module")
def source() -> Source:
    return resolve(KNOWN.release)


ATTENDING = [fault for fault in KNOWN.faults if fault.layer == "attention"]


@pytest.fixture(scope="module")
def subject(source: Source) -> Iterator[Supervisor]:
    with Supervisor(source) as supervisor:
        yield supervisor


@pytest.mark.slow
def test_every_fault_is_caught_and_every_check_is_needed_by_one_of_them(source: Source) -> None:
    found = study(source, [], arguments(), None, 0, Draw(), with_faults=True)
    needed = {fault.by[0] for fault in found.faults if len(fault.by) == 1}

    assert [fault.name for fault in found.faults] == [fault.name for fault in KNOWN.faults]
    assert [fault.name for fault in found.faults if not fault.as_it_should] == []
    assert set(found.checks) - needed == set()
    assert median(one.own for one in found.detections) <= 20


def test_with_its_check_switched_off_a_fault_lives(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    few = tuple(fault for fault in KNOWN.faults if fault.name in ("block-never-added", "table-as-wide-as-the-prefix"))
    monkeypatch.setattr(study_module, "known_faults", lambda: KnownFaults(KNOWN.release, few))

    found = study(source, [], arguments(), None, 0, Draw(), with_faults=True, without=["kv-lengths"])

    assert {fault.name: fault.by for fault in found.faults} == {
        "block-never-added": (),
        "table-as-wide-as-the-prefix": ("block-table",),
    }
    assert found.detections == []
    assert "--without kv-lengths" in power_page(found)


def test_a_check_that_cannot_be_switched_off_as_there_is_none_is_named(source: Source) -> None:
    with pytest.raises(UsageError, match="there is no check 'kv-length': the checks are kv-lengths"):
        study(source, [], arguments(), None, 0, Draw(), without=["kv-length"])


@pytest.mark.parametrize("fault", ATTENDING, ids=lambda fault: fault.name)
def test_a_fault_of_attention_shows_in_no_metadata(fault: KnownFault, subject: Supervisor) -> None:
    scenario = PINNED[fault.case].scenario
    assert isinstance(scenario, MetadataScenario)

    assert said(subject, [fault], replace(scenario, attention=None), asked("metadata", CHECKS.values())) == [set()]


def test_every_fault_names_reports_of_the_catalogue_and_its_check_is_of_its_layer() -> None:
    numbers = {report.id for report in reports()}
    for fault in KNOWN.faults:
        assert set(fault.reports) <= numbers, fault.name
        assert CHECKS[fault.check].group in GROUPS[fault.layer], fault.name
        assert fault.find != fault.replace


def test_names_are_not_used_twice() -> None:
    assert len({fault.name for fault in KNOWN.faults}) == len(KNOWN.faults)


def test_a_fault_whose_text_is_gone_is_an_error_that_names_it(source: Source) -> None:
    stale = replace(KNOWN.faults[0], find="no such text")

    with pytest.raises(UsageError, match=f"the fault {stale.name} cannot be planted .* stands 0 times"):
        stale.patch(Path(source.path))


def test_a_folder_without_faults_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no faults"):
        known_faults(tmp_path)
