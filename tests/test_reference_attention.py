"""Dense attention in float64, held to examples worked by hand."""

import numpy as np
import pytest
from msgspec.structs import replace

from harness.reference import attention
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention

VERIFY = MetadataScenario(
    "DFLASH", "target_verify", ((Request(1),),), draft_tokens=2, attention=Attention(query_heads=1, kv_heads=1)
)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every key scores the same, and the value of position j is j: outputs are means of what is visible."""
    monkeypatch.setattr(attention, "keys", lambda scenario, slots: np.zeros((len(slots), 1, 128), dtype=np.float32))
    monkeypatch.setattr(
        attention,
        "values",
        lambda scenario, slots: np.arange(len(slots), dtype=np.float32)[:, None, None] * np.ones((1, 1, 128), "f4"),
    )


@pytest.mark.parametrize(
    ("scenario", "means"),
    [
        (VERIFY, [0.5, 1.0]),  # query 0 sees 0, 1; query 1 sees 0, 1, 2
        (replace(VERIFY, mode="draft_block"), [1.0, 1.0]),  # both see 0, 1, 2
        (replace(VERIFY, algorithm="NONE", mode="decode", draft_tokens=1, rounds=((Request(4),),)), [2.0]),
        (replace(VERIFY, algorithm="NONE", mode="extend", rounds=((Request(2, new_tokens=2),),)), [1.0, 1.5]),
        # Step 1 of a draft is at position 3: it sees 0 to 3.
        (
            replace(VERIFY, algorithm="EAGLE", mode="draft_decode", draft_tokens=4, step=1, rounds=((Request(2),),)),
            [1.5],
        ),
        # A draft extend runs over its whole block, causally, whatever was accepted.
        (replace(VERIFY, algorithm="EAGLE", mode="draft_extend", rounds=((Request(1, new_tokens=1),),)), [0.5, 1.0]),
    ],
    ids=lambda value: value.mode if isinstance(value, MetadataScenario) else "",
)
@pytest.mark.usefixtures("by_hand")
def test_a_query_sees_what_came_before_it_and_a_draft_block_sees_itself_whole(
    scenario: MetadataScenario, means: list[float]
) -> None:
    output = attention.outputs(scenario, scenario.rounds[0])

    assert output[:, 0, 0].tolist() == pytest.approx(means)


def test_outputs_do_not_depend_on_where_other_requests_lie() -> None:
    both = replace(VERIFY, rounds=((Request(1), Request(7, row=2)),))
    alone = attention.outputs(VERIFY, VERIFY.rounds[0])

    assert np.array_equal(attention.outputs(both, both.rounds[0])[:2], alone)


def test_queries_of_one_kv_head_share_its_keys() -> None:
    grouped = replace(VERIFY, attention=Attention(query_heads=4, kv_heads=2), pool=Pool(page_size=16))

    assert attention.outputs(grouped, grouped.rounds[0]).shape == (2, 4, 128)
