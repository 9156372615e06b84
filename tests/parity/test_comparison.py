"""Comparing two sides: what is the same, what is noise, what differs and where, and what nobody knows."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.checks.noise import bound
from harness.parity.comparison import Comparison
from harness.parity.document import ComparisonDocument
from harness.scenario.observation import Array, Fault, Floats, Observation
from tests.parity.sides import INFO, SCENARIOS, IdealSide, Plant

#: The scenario that faults are planted in; its first round has requests.
NUMBER = next(n for n, one in enumerate(SCENARIOS) if one.mode == "target_verify" and one.rounds[0])
WINDOW = next(
    n for n, one in enumerate(SCENARIOS) if one.mode == "target_verify" and one.target == "swa" and one.rounds[0]
)
LIMIT = bound("emulated/float32")


def compared(plant: Plant, info: object = INFO) -> ComparisonDocument:
    comparison = Comparison(IdealSide(), IdealSide(plant, info))  # type: ignore[arg-type]
    comparison.run(SCENARIOS, lambda done, total: None)
    return comparison.document()


def off_by(error: float, number: int = NUMBER, head: int = 0) -> Plant:
    """One value of the last row of the first round is off."""

    def plant(scenario: int, observed: Observation) -> Observation:
        if scenario != number:
            return observed
        output = observed.seen[0].output
        assert output is not None
        values = output.values.copy()
        values[-1, head, 7] += error
        return replace(observed, seen=(replace(observed.seen[0], output=Floats.of(values)), *observed.seen[1:]))

    return plant


def told(name: str, change: int) -> Plant:
    """The first request's length is told wrongly."""

    def plant(scenario: int, observed: Observation) -> Observation:
        if scenario != NUMBER or name not in observed.seen[0].fields:
            return observed
        lengths = observed.seen[0].fields[name].values.copy()
        lengths[0] += change
        fields = observed.seen[0].fields | {name: Array.of(lengths)}
        return replace(observed, seen=(replace(observed.seen[0], fields=fields), *observed.seen[1:]))

    return plant


def test_two_right_sides_are_equal() -> None:
    document = compared(lambda number, observed: observed)

    assert document.verdict == "EQUAL"
    assert document.counts == {"DIFFERENT": 0, "UNKNOWN": 0, "WITHIN NOISE": 0, "EQUAL": len(SCENARIOS)}
    assert document.ratio["rms"] == 1.0
    assert document.first is None


def test_what_lies_within_the_measured_noise_is_no_difference() -> None:
    document = compared(off_by(LIMIT / 2))

    assert document.verdict == "WITHIN NOISE"
    assert document.counts["WITHIN NOISE"] == 1
    assert document.ratio["largest"] > 1


@pytest.mark.parametrize("error", [10 * LIMIT, float("nan"), float("inf")])
def test_what_is_beyond_the_noise_is_different_and_the_place_is_named(error: float) -> None:
    document = compared(off_by(error))
    first = document.first

    assert document.verdict == "DIFFERENT"
    assert document.counts["DIFFERENT"] == 1
    assert first is not None
    requests = SCENARIOS[NUMBER].rounds[0]
    assert (first.scenario, first.step, first.field, first.layer) == (NUMBER, 0, "output", "full")
    assert (first.request, first.row) == (len(requests) - 1, SCENARIOS[NUMBER].draft_tokens - 1)
    assert first.a < 1e-6 < first.b  # type: ignore[operator]


def test_a_difference_in_a_window_layer_is_of_that_layer() -> None:
    first = compared(off_by(1.0, WINDOW, head=-1)).first

    assert first is not None
    assert (first.scenario, first.layer) == (WINDOW, "window")


@pytest.mark.parametrize("change", [-1, 16])
def test_a_wrong_length_is_different_although_the_output_is_right(change: int) -> None:
    field = "host_lengths" if SCENARIOS[NUMBER].executor == "graph" else "seq_lens_cpu_int"
    first = compared(told(field, change)).first

    assert first is not None
    assert (first.scenario, first.field, first.request) == (NUMBER, "kv_lengths", 0)
    assert first.b == first.a + change  # type: ignore[operator]
    assert first.right == first.a


def test_a_field_of_both_sides_that_differs_is_different() -> None:
    first = compared(told("block_tables", 1)).first

    assert first is not None
    assert first.field == "block_tables"


def test_an_error_on_one_side_is_different_and_on_both_unknown() -> None:
    def raises(scenario: int, observed: Observation) -> Observation:
        return replace(
            observed, seen=tuple(replace(seen, error="ValueError: no", output=None) for seen in observed.seen)
        )

    document = compared(raises)
    both = Comparison(IdealSide(raises), IdealSide(raises))
    both.run(SCENARIOS[:1], lambda done, total: None)

    assert document.verdict == "DIFFERENT"
    assert document.first is not None
    assert document.first.message == "b raised ValueError: no"
    assert both.document().verdict == "UNKNOWN"


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (Observation(fault=Fault("crash", "it died")), "b: crash: it died"),
        (Observation(), "b has 0 rounds and not 1"),
    ],
)
def test_what_was_not_seen_is_unknown_and_never_equal(observed: Observation, reason: str) -> None:
    number = next(n for n, one in enumerate(SCENARIOS) if len(one.rounds) == 1)
    document = compared(lambda scenario, right: observed if scenario == number else right)

    assert document.verdict == "UNKNOWN"
    assert document.scenarios[number].reason == reason


def test_an_output_that_is_missing_or_has_another_shape_is_unknown() -> None:
    def short(scenario: int, observed: Observation) -> Observation:
        seen = tuple(replace(one, output=Floats.of(np.zeros((1, 1, 1)))) for one in observed.seen)
        return replace(observed, seen=seen)

    def missing(scenario: int, observed: Observation) -> Observation:
        return replace(observed, seen=tuple(replace(one, output=None) for one in observed.seen))

    assert compared(short).verdict == "UNKNOWN"
    assert compared(missing).verdict == "UNKNOWN"


def test_a_device_whose_noise_nobody_has_measured_is_unknown_unless_bits_are_equal() -> None:
    info = replace(INFO, device="cuda:NVIDIA Nothing")

    assert compared(off_by(LIMIT / 2), info).verdict == "UNKNOWN"
    assert compared(lambda number, observed: observed, info).verdict == "EQUAL"


def test_nothing_compared_is_unknown() -> None:
    assert Comparison(IdealSide(), IdealSide()).document().verdict == "UNKNOWN"


def test_a_scenario_that_one_side_alone_has_is_unknown() -> None:
    comparison = Comparison(IdealSide(), IdealSide())
    comparison.run(SCENARIOS[:2], lambda done, total: None)
    comparison.only_one(SCENARIOS[2], "a")

    assert comparison.document().verdict == "UNKNOWN"
    assert comparison.document().scenarios[2].reason == "only a has it"
