"""Where sglang has the host wait for the device, counted in each round."""

from collections import Counter

import pytest

from harness.npu.synchronisation import Synchronisation
from harness.scenario import MetadataScenario, Request
from harness.scenario.observation import Wait
from harness.subject.ascend.reading import waits
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor

REPLAYED = MetadataScenario(
    "DSPARK", "target_verify", ((Request(130),), (Request(5),)), executor="graph", draft_tokens=4, buckets=(2,)
)


@pytest.mark.slow
def test_0_5_22_waits_for_the_lengths_of_each_replay_and_0_5_23_does_not(right: Supervisor) -> None:
    with Supervisor(resolve("0.5.22")) as before:
        (waited,) = before.observe([REPLAYED])
    (free,) = right.observe([REPLAYED])

    for seen in waited.seen:
        ((reason, site, count),) = ((wait.reason, wait.site, wait.count) for wait in seen.waits)
        assert (reason, site.partition(":")[0], count) == ("aten::_copy_from", "graph_runner/npu_graph_runner.py", 1)
    assert [seen.waits for seen in free.seen] == [(), ()]


def test_waits_of_the_driver_are_none_of_sglang_s() -> None:
    counter = Counter(
        {
            Synchronisation("aten::_copy_from", "ascend/reading.py:7"): 3,
            Synchronisation("aten::_copy_from", "attention/ascend_backend.py:9"): 2,
        }
    )

    assert waits(counter) == (Wait("aten::_copy_from", "attention/ascend_backend.py:9", 2),)
