"""Eager batches that data parallelism pads, on real sglang: live rows are what they are without padding."""

import pytest

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import checks_of
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention, Mode, Target
from harness.scenario.validity import why_invalid
from harness.subject.supervisor import Supervisor

CHECKS = checks_of(("kv-bounds", "outputs"))

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


def findings(supervisor: Supervisor, one: MetadataScenario) -> set[str]:
    assert why_invalid(one) == ""
    tally = Tally([check.id for check in CHECKS])
    found = {finding.fingerprint for finding in Trial(supervisor.observe, CHECKS, tally).judge(one)}
    assert all(counts.ran == 1 for counts in tally.checks.values())
    return found


@pytest.mark.parametrize("target", ["mha", "mla"])
@pytest.mark.parametrize("mode", ["extend", "decode", "target_verify"])
def test_a_padded_batch_attends_as_it_should(mode: Mode, target: Target, right: Supervisor) -> None:
    assert findings(right, scenario(mode, target, 3)) == set()


@pytest.mark.parametrize("mode", ["extend", "decode", "target_verify"])
def test_padding_adds_no_row_to_the_output(mode: Mode, right: Supervisor) -> None:
    outputs = []
    for padding in (0, 3):
        (seen,) = right.observe([scenario(mode, "mha", padding)])[0].seen
        assert seen.output is not None
        outputs.append(seen.output.values)

    assert (outputs[0] == outputs[1]).all()
