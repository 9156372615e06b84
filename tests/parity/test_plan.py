"""Which scenarios are recorded and compared: the same every time, no two alike, and none so large that a night is."""

import pytest

from harness.parity.plan import COUNTS, MOST_VALUES, planned
from harness.scenario import MetadataScenario
from harness.subject.frames import SubjectInfo
from tests.ideal import CAPABILITIES, observation

TRITON = SubjectInfo("triton", "0.0.1", "triton-interpreter", {}, CAPABILITIES)
COUNT = COUNTS["dev"]
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def scenarios() -> tuple[MetadataScenario, ...]:
    return planned([TRITON], COUNT, 0)


def values(scenario: MetadataScenario) -> int:
    """How many numbers the outputs of `scenario` are in the end."""
    return sum(int(seen.output.values.size) for seen in observation(scenario).seen if seen.output is not None)


def test_as_many_are_planned_as_were_asked_for_no_two_alike_and_the_same_again(
    scenarios: tuple[MetadataScenario, ...],
) -> None:
    assert len(set(scenarios)) == len(scenarios) == COUNT
    assert planned([TRITON], COUNT, 0) == scenarios
    assert planned([TRITON], COUNT, 1) != scenarios


def test_no_scenario_has_more_numbers_than_the_bound_and_two_thousand_fit_into_fifty_megabytes(
    scenarios: tuple[MetadataScenario, ...],
) -> None:
    counted = [values(scenario) for scenario in scenarios]
    assert 0 < max(counted) <= MOST_VALUES
    assert COUNTS["nightly"] * 4 * sum(counted) / COUNT < 45 * MEGABYTE


def test_plain_and_grouped_heads_short_and_long_prefixes_are_among_them(
    scenarios: tuple[MetadataScenario, ...],
) -> None:
    heads = {
        scenario.attention.query_heads == scenario.attention.kv_heads for scenario in scenarios if scenario.attention
    }
    prefixes = [request.prefix for scenario in scenarios for batch in scenario.rounds for request in batch]
    assert heads == {True, False}
    assert min(prefixes) < 16
    assert max(prefixes) > 512
