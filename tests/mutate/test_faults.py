"""The faults of the catalogue: each is caught on the real source by the check that it names, the cheapest that can."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.checks.check import Check
from harness.checks.registry import CHECKS
from harness.errors import UsageError
from harness.inventory.reports import reports
from harness.mutate.faults import KnownFault, double_count, known_faults, said
from harness.mutate.scenes import GROUPS, Layer, asked
from harness.scenario import MetadataScenario
from harness.scenario.pinned import pinned_cases
from harness.subject.source import Source, resolve
from harness.subject.supervisor import Supervisor

KNOWN = known_faults()
PINNED = pinned_cases()


@pytest.fixture(scope="module")
def source() -> Source:
    return resolve(KNOWN.release)


@pytest.fixture(scope="module")
def subject(source: Source) -> Iterator[Supervisor]:
    with Supervisor(source) as supervisor:
        yield supervisor


def checks_of_layers(*layers: Layer) -> list[Check]:
    return [check for layer in layers for check in asked(layer, CHECKS.values())]


#: Every fault of a cheap layer, and one of a session: `harness mutate --faults` plays them all.
CHEAP = [fault for fault in KNOWN.faults if fault.layer != "sessions" or fault.check == "session-acceptance"]


@pytest.mark.parametrize("fault", CHEAP, ids=lambda fault: fault.name)
def test_a_fault_is_caught_by_its_check_and_by_none_of_a_cheaper_layer(fault: KnownFault, subject: Supervisor) -> None:
    scenario = PINNED[fault.case].scenario
    (caught,) = said(subject, [fault], scenario, [CHECKS[fault.check]])

    assert [word.check for word in caught if not word.unknown] == [fault.check]
    if fault.layer == "attention":
        assert isinstance(scenario, MetadataScenario)
        without = replace(scenario, attention=None)
        assert said(subject, [fault], without, checks_of_layers("metadata")) == [set()]


def test_the_double_count_is_caught_within_20_scenarios_of_its_code(subject: Supervisor) -> None:
    assert [double_count(subject, checks_of_layers("metadata"), seed).own <= 20 for seed in range(3)] == [True] * 3


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
