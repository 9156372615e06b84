"""Which tokens a verify emits, given what the target says: no more and no fewer than without speculation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.scenario.verify_strategies import ALGORITHMS, VerifyCell, verifies, verify_cells


@pytest.mark.parametrize("cell", verify_cells(ALGORITHMS), ids=str)
@given(data=st.data())
def test_a_verify_emits_what_the_target_says(cell: VerifyCell, data: st.DataObject, bench) -> None:
    bench.require(cell.algorithm)
    scenario = data.draw(verifies(cell, bench.capabilities), label="scenario")
    bench.require_right(scenario, groups=("accept",))
