"""Attention runs, every access to the KV cache is watched, and what nobody has written may not matter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario.attention import attends, attention_scenarios
from harness.scenario.strategies import Cell, cells
from harness.scenario.validity import MODES


@pytest.mark.parametrize("cell", [cell for cell in cells(tuple(MODES)) if attends(cell)], ids=str)
@given(data=st.data())
def test_attention_reads_what_was_written_and_nothing_else(cell: Cell, data: st.DataObject, bench) -> None:
    scenario = data.draw(attention_scenarios(bench.available(cell), bench.capabilities), label="scenario")
    bench.require_right(scenario, groups=("kv-bounds",))
