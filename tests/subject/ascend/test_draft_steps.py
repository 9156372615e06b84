"""A replayed draft holds all its steps: right in a release, and each step's own lengths and locations matter."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import checks_of
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention, Executor, Target
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor
from tests.subject.ascend import planted

CHECKS = checks_of(("kv-bounds", "outputs"))
STEPS = range(3)

pytestmark = pytest.mark.slow


def scenario(target: Target, step: int, executor: Executor = "graph") -> MetadataScenario:
    """A draft of three steps that attend: a padded batch, whose second request crosses a page, and a full one."""
    return MetadataScenario(
        algorithm="EAGLE",
        mode="draft_decode",
        executor=executor,
        target=target,
        buckets=(1, 4) if executor == "graph" else (),
        draft_tokens=5,
        step=step,
        rounds=((Request(130), Request(127, row=2), Request(60, row=3)), (Request(300),)),
        pool=Pool(page_stride=3),
        attention=Attention(query_heads=4 if target == "mla" else 2),
    )


def found(supervisor: Supervisor, one: MetadataScenario) -> dict[str, str]:
    findings = Trial(supervisor.observe, CHECKS, Tally([check.id for check in CHECKS])).judge(one)
    return {finding.check: finding.message for finding in findings}


@pytest.mark.parametrize("target", ["mha", "mla"])
@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_a_replay_is_right(target: Target, step: int, right: Supervisor) -> None:
    assert found(right, scenario(target, step)) == {}


@pytest.mark.parametrize("step", STEPS)
def test_a_replayed_step_computes_what_it_computes_in_eager(step: int, right: Supervisor) -> None:
    replayed, eager = right.observe([scenario("mha", step), scenario("mha", step, "eager")])

    assert [seen.output for seen in replayed.seen] == [seen.output for seen in eager.seen]


@pytest.fixture(scope="module")
def reversed_steps() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), command=planted.command("steps-reversed")) as supervisor:
        yield supervisor


@pytest.mark.parametrize("target", ["mha", "mla"])
def test_a_first_step_with_the_lengths_of_the_last_reads_what_is_not_written(
    target: Target, reversed_steps: Supervisor
) -> None:
    messages = found(reversed_steps, scenario(target, 0))

    assert "position 131 of request 0 (row 1)" in messages["kv-access"]
    assert "was never written (2 positions)" in messages["kv-access"]
    assert "output of request 0, query 0 is off by" in messages["attention-output"]


@pytest.mark.parametrize("target", ["mha", "mla"])
def test_a_last_step_with_the_lengths_of_the_first_does_not_see_itself(
    target: Target, reversed_steps: Supervisor
) -> None:
    messages = found(reversed_steps, scenario(target, 2))

    assert (
        "is told to read 131 positions of request 0 (row 1), whose queries stand at positions 132"
        in (messages["kv-access"])
    )


def test_a_middle_step_is_right_when_the_others_are_swapped(reversed_steps: Supervisor) -> None:
    """What is reported is what is wrong with the step that the scenario names."""
    assert found(reversed_steps, scenario("mha", 1)) == {}


@pytest.fixture(scope="module")
def one_location() -> Iterator[Supervisor]:
    with Supervisor(resolve("0.5.23"), command=planted.command("one-location-for-all-steps")) as supervisor:
        yield supervisor


@pytest.mark.parametrize("executor", ["graph", "eager"])
def test_steps_that_write_where_the_first_one_does_are_caught(executor: Executor, one_location: Supervisor) -> None:
    one = scenario("mha", 1, executor)
    if executor == "eager":
        one = replace(one, rounds=one.rounds[:1])
    messages = found(one_location, one)

    assert "reads position 131 of request 0 (row 1)" in messages["kv-access"]
    assert "was never written (1 position)" in messages["kv-access"]
    assert "output of request 0, query 0 is off by" in messages["attention-output"]


def test_the_first_step_is_right_when_the_others_write_to_its_place(one_location: Supervisor) -> None:
    assert found(one_location, scenario("mha", 0)) == {}
