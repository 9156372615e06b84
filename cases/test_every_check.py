"""Last of all: a check that never ran has told nothing, and that is an error."""

import pytest

from harness.scenario.strategies import cells
from harness.scenario.validity import MODES


def test_every_check_has_run(bench, request: pytest.FixtureRequest) -> None:
    names = {item.name for item in request.session.items}
    if not all(f"test_metadata_of_drawn_batches_is_right[{cell}]" in names for cell in cells(tuple(MODES))):
        pytest.skip("only a part of the suite was selected")
    never = [check_id for check_id, counts in bench.tally.checks.items() if counts.ran == 0]

    assert never == []
