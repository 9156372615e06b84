"""Attention runs, and every output row lies within the measured noise of float64."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario.attention import attends, attention_scenarios
from harness.scenario.strategies import Cell, cells
from harness.scenario.validity import MODES


@pytest.mark.parametrize("cell", [cell for cell in cells(tuple(MODES)) if attends(cell)], ids=str)
@given(data=st.data())
def test_outputs_are_those_of_dense_attention(cell: Cell, data: st.DataObject, bench) -> None:
    scenario = data.draw(attention_scenarios(bench.available(cell), bench.capabilities), label="scenario")
    bench.require_right(scenario, groups=("outputs",))
