"""Progress without a terminal: a line for each stage, and more of them for what takes long."""

import io

import pytest
from rich.console import Console

from harness.report.progress import Bars


@pytest.mark.parametrize(("lines", "printed"), [(0, [0]), (4, [0, 5, 10, 15, 20])])
def test_a_stage_has_a_line_and_more_where_they_are_asked_for(lines: int, printed: list[int]) -> None:
    file = io.StringIO()
    with Bars(Console(file=file, width=100), lines) as bars:
        for done in range(21):
            bars.advance("sglang", "mutants", done, 20)

    assert file.getvalue().splitlines() == [f"sglang: mutants ({done}/20)" for done in printed]
