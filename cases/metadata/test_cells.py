"""Drawn batches of every code path: whatever the lengths, the metadata is what the contract says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario.strategies import Cell, cells, scenarios
from harness.scenario.validity import MODES


@pytest.mark.parametrize("cell", cells(tuple(MODES)), ids=str)
@given(data=st.data())
def test_metadata_of_drawn_batches_is_right(cell: Cell, data: st.DataObject, bench) -> None:
    scenario = data.draw(scenarios(bench.available(cell), bench.capabilities), label="scenario")
    bench.require_right(scenario, groups=("metadata",))
