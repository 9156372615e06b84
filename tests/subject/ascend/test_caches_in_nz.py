"""MLA over caches in the layout NZ, on real sglang: right where it should be, and a planted write of rows is found."""

from collections.abc import Iterator

import pytest

from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention, Executor
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.ascend import planted as planted_in
from tests.subject.ascend.attending import found

STEPS: tuple[tuple[str, str, Executor], ...] = (
    ("NONE", "decode", "eager"),
    ("NONE", "decode", "graph"),
    ("EAGLE", "target_verify", "eager"),
    ("EAGLE", "target_verify", "graph"),
    ("EAGLE", "draft_decode", "eager"),
    ("EAGLE", "draft_extend", "eager"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def before_the_pool_wrote_it() -> Iterator[Supervisor]:
    """Where the fused operators of MLAPO write NZ, for which the driver stands in."""
    with Supervisor(resolve("0.5.20")) as supervisor:
        yield supervisor


@pytest.fixture(scope="module")
def planted() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), command=planted_in.command("rows-in-nz")) as supervisor:
        yield supervisor


def scenario(algorithm: str, mode: str, executor: Executor = "eager", nz: bool = True) -> MetadataScenario:
    new = {"extend": 5, "draft_extend": 2}.get(mode, 0)
    prefixes = (128, 256) if mode == "extend" else (130, 20)
    return MetadataScenario(
        algorithm=algorithm,
        mode=mode,
        executor=executor,
        target="mla",
        draft_tokens=1 if algorithm == "NONE" else 4,
        rounds=(tuple(Request(prefix, row, new) for row, prefix in enumerate(prefixes, start=1)),),
        buckets=(2,) if executor == "graph" else (),
        pool=Pool(context_length=400, rows=2, page_stride=3),
        attention=Attention(fia=True, query_heads=8, nz=nz),
    )


@pytest.mark.parametrize(("algorithm", "mode", "executor"), [("NONE", "extend", "eager"), *STEPS])
def test_attention_over_caches_in_nz_is_right(algorithm: str, mode: str, executor: Executor, right: Supervisor) -> None:
    assert found(right, scenario(algorithm, mode, executor)) == []


@pytest.mark.parametrize(("algorithm", "mode", "executor"), STEPS)
def test_so_it_is_where_the_driver_stands_in_for_the_write(
    algorithm: str, mode: str, executor: Executor, before_the_pool_wrote_it: Supervisor
) -> None:
    assert found(before_the_pool_wrote_it, scenario(algorithm, mode, executor)) == []


@pytest.mark.parametrize(("algorithm", "mode", "executor"), STEPS)
def test_rows_written_to_caches_in_nz_are_found_by_the_outputs(
    algorithm: str, mode: str, executor: Executor, planted: Supervisor
) -> None:
    assert "attention-output" in {finding.check for finding in found(planted, scenario(algorithm, mode, executor))}


def test_sessions_of_both_layouts_take_turns(planted: Supervisor) -> None:
    """The fault shows in NZ alone, whichever layout was asked for before."""
    for nz in (False, True, False, True):
        checks = {finding.check for finding in found(planted, scenario("NONE", "decode", nz=nz))}
        assert ("attention-output" in checks) == nz
