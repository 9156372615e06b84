"""Host lengths that stay what they were at capture: planted in a right release, and met in one as it was released."""

from collections.abc import Iterator

import pytest

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import checks_of
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention, Target
from harness.scenario.validity import why_invalid
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.ascend import planted as planted_in

CHECKS = checks_of(("kv-bounds", "outputs"))
MODES = (
    ("NONE", "decode"),
    ("DFLASH", "target_verify"),
    ("EAGLE", "target_verify"),
    ("EAGLE", "draft_decode"),
    ("EAGLE", "draft_extend"),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def planted() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), command=planted_in.command("frozen-lengths")) as supervisor:
        yield supervisor


def scenario(algorithm: str, mode: str, target: Target = "mha", sinks: bool = False) -> MetadataScenario:
    """A batch of two in a bucket of four, and then one of another length in a bucket of two."""
    new = 2 if mode == "draft_extend" else 0
    return MetadataScenario(
        algorithm=algorithm,
        mode=mode,
        executor="graph",
        target=target,
        window=16 if target == "swa" else 0,
        buckets=(2, 4),
        draft_tokens=1 if algorithm == "NONE" else 4,
        rounds=(
            (Request(130, new_tokens=new), Request(5, row=2, new_tokens=new), Request(60, row=3, new_tokens=new)),
            (Request(300, new_tokens=new),),
        ),
        pool=Pool(page_stride=3),
        attention=Attention(sinks=sinks, query_heads=4 if target == "mla" else 2),
    )


def found(supervisor: Supervisor, one: MetadataScenario) -> dict[str, str]:
    assert why_invalid(one) == ""
    findings = Trial(supervisor.observe, CHECKS, Tally([check.id for check in CHECKS])).judge(one)
    return {finding.check: finding.message for finding in findings}


@pytest.mark.parametrize("target", ["mha", "mla"])
@pytest.mark.parametrize(("algorithm", "mode"), MODES)
def test_a_replay_with_the_lengths_of_capture_is_caught(
    algorithm: str, mode: str, target: Target, planted: Supervisor
) -> None:
    messages = found(planted, scenario(algorithm, mode, target))

    assert "is told to read 0 positions of request 0 (row 1), whose queries stand at positions" in messages["kv-access"]
    assert "output of request 0, query 0 is off by" in messages["attention-output"]


@pytest.mark.parametrize("target", ["mha", "mla"])
@pytest.mark.parametrize(("algorithm", "mode"), MODES)
def test_a_replay_with_the_lengths_of_its_batch_is_right(
    algorithm: str, mode: str, target: Target, right: Supervisor
) -> None:
    assert found(right, scenario(algorithm, mode, target)) == {}


def test_a_verify_with_sinks_meets_it_in_the_release_as_it_is(right: Supervisor) -> None:
    """gpt-oss verifies by the operator's second version, whose lengths have another name than the update gives."""
    messages = found(right, scenario("EAGLE", "target_verify", "swa", sinks=True))

    assert "v2 is told to read 0 positions of request 0 (row 1)" in messages["kv-access"]


def test_a_verify_of_a_model_whose_update_knows_that_name_is_right(right: Supervisor) -> None:
    assert found(right, scenario("EAGLE", "target_verify", "swa")) == {}
