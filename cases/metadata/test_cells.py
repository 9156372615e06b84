"""Drawn batches of every code path: whatever the lengths, the metadata is what the contract says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario.strategies import Cell, cells, scenarios
from harness.scenario.validity import MODES


@pytest.mark.parametrize("cell", cells(tuple(MODES)), ids=str)
@given(data=st.data())
def test_metadata_of_drawn_batches_is_right(cell: Cell, data: st.DataObject, bench) -> None:
    if cell.algorithms[0] not in (*bench.capabilities, "NONE"):
        pytest.skip(f"sglang {bench.supervisor.info.release} has no {cell.algorithms[0]}")
    available = cell._replace(algorithms=tuple(a for a in cell.algorithms if a in (*bench.capabilities, "NONE")))
    bench.require_right(data.draw(scenarios(available, bench.capabilities), label="scenario"))
