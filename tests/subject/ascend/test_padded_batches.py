"""Eager batches that data parallelism pads, on real sglang: live rows are what they are without padding."""

import pytest

from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention, Mode, Target
from harness.subject.supervisor import Supervisor
from tests.subject.ascend.attending import found

pytestmark = pytest.mark.slow


def scenario(mode: Mode, target: Target, padding: int) -> MetadataScenario:
    new = 5 if mode == "extend" else 0
    return MetadataScenario(
        algorithm="EAGLE" if mode == "target_verify" else "NONE",
        mode=mode,
        target=target,
        draft_tokens=4 if mode == "target_verify" else 1,
        rounds=((Request(128, 1, new), Request(0, 2, new and 3)),),
        pool=Pool(context_length=400, rows=2, page_stride=3),
        attention=Attention(fia=True, query_heads=8, padding=padding),
    )


@pytest.mark.parametrize("target", ["mha", "mla"])
@pytest.mark.parametrize("mode", ["extend", "decode", "target_verify"])
def test_a_padded_batch_attends_as_it_should(mode: Mode, target: Target, right: Supervisor) -> None:
    assert found(right, scenario(mode, target, 3)) == []


@pytest.mark.parametrize("mode", ["extend", "decode", "target_verify"])
def test_padding_adds_no_row_to_the_output(mode: Mode, right: Supervisor) -> None:
    outputs = []
    for padding in (0, 3):
        (seen,) = right.observe([scenario(mode, "mha", padding)])[0].seen
        assert seen.output is not None
        outputs.append(seen.output.values)

    assert (outputs[0] == outputs[1]).all()
