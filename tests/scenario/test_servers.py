"""Which servers sessions run on: every kind of target, the trained one most."""

from collections import Counter
from typing import get_args

from harness.scenario.axes import AXES
from harness.scenario.session import SessionTarget
from harness.scenario.session_strategies import ALGORITHMS, TRAINED, servers

KNOWN = {axis.name for axis in AXES}


def _rows(rows: int) -> Counter[str]:
    return Counter(server.target for server in servers(ALGORITHMS, KNOWN, rows))


def test_one_row_runs_the_trained_target_alone() -> None:
    assert _rows(1) == {TRAINED: 2 * len(ALGORITHMS)}


def test_more_rows_run_every_target_with_one_fewer() -> None:
    each = 2 * len(ALGORITHMS)

    assert _rows(3) == {target: each * (3 if target == TRAINED else 2) for target in get_args(SessionTarget)}


def test_an_axis_is_varied_on_the_targets_that_have_it() -> None:
    varied = {(server.target, name) for server in servers(ALGORITHMS, KNOWN, 99) for name, _ in server.row}

    assert {target for target, name in varied if name == "SGLANG_SWA_EVICTION_INTERVAL"} == {"swa"}
    assert {target for target, name in varied if name == "SGLANG_USE_FIA_NZ"} == {"mla"}
    assert {target for target, name in varied if name == "page_size"} == set(get_args(SessionTarget))
