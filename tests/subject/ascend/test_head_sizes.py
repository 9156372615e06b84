"""Heads of other sizes than 128, on real sglang: which path attends depends on them, and every one of them is right."""

import pytest

from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.attention import SIZES
from harness.scenario.metadata import Attention, Executor
from harness.subject.supervisor import Supervisor
from tests.subject.ascend.attending import found

STEPS: tuple[tuple[str, str, Executor], ...] = (
    ("NONE", "extend", "eager"),
    ("NONE", "decode", "eager"),
    ("NONE", "decode", "graph"),
    ("EAGLE", "target_verify", "eager"),
    ("DFLASH", "target_verify", "graph"),
)

pytestmark = pytest.mark.slow


def scenario(algorithm: str, mode: str, executor: Executor, attention: Attention, window: int = 0) -> MetadataScenario:
    """Two requests, the second of which has fewer tokens."""
    new = {"extend": 5}.get(mode, 0)
    return MetadataScenario(
        algorithm=algorithm,  # type: ignore[arg-type]
        mode=mode,  # type: ignore[arg-type]
        executor=executor,
        target="swa" if window else "mha",
        window=window,
        draft_tokens=1 if algorithm == "NONE" else 4,
        rounds=((Request(130, 1, new), Request(20, 2, new and new - 2)),),
        buckets=(2,) if executor == "graph" else (),
        pool=Pool(context_length=400, rows=2, page_stride=3),
        attention=attention,
    )


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("fia", [False, True])
@pytest.mark.parametrize(("algorithm", "mode", "executor"), STEPS)
def test_heads_of_every_size_attend_as_they_should(
    algorithm: str, mode: str, executor: Executor, fia: bool, sizes: tuple[int, int], right: Supervisor
) -> None:
    attention = Attention(fia=fia, query_heads=4, kv_heads=2, head_size=sizes[0], value_size=sizes[1])

    assert found(right, scenario(algorithm, mode, executor, attention)) == []


def test_a_batch_that_extends_request_by_request_misses_no_row(right: Supervisor) -> None:
    """Window layers with heads of 64 do, with FIA."""
    attention = Attention(fia=True, head_size=64, value_size=64)

    assert found(right, scenario("NONE", "extend", "eager", attention, window=40)) == []
