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


WINDOW = replace(VERIFY, target="swa", window=2)


@pytest.mark.parametrize(
    ("scenario", "full", "window"),
    [
        (
            WINDOW,
            [0.5, 1.0],
            [0.5, 1.5],
        ),  # query 0 is at 1, query 1 at 2: a window of 2 is a query's own and one before
        # A draft block is seen whole in the full layer, and causally in the window layer.
        (replace(WINDOW, mode="draft_block"), [1.0, 1.0], [0.5, 1.5]),
        (replace(WINDOW, window=100), [0.5, 1.0], [0.5, 1.0]),
        (
            replace(WINDOW, algorithm="EAGLE", mode="draft_decode", draft_tokens=4, step=1, rounds=((Request(4),),)),
            [2.5],
            [4.5],
        ),
    ],
)
@pytest.mark.usefixtures("by_hand")
def test_heads_of_the_window_layer_come_after_those_of_the_full_one(
    scenario: MetadataScenario, full: list[float], window: list[float]
) -> None:
    output = attention.outputs(scenario, scenario.rounds[0])

    assert output[:, 0, 0].tolist() == pytest.approx(full)
    assert output[:, 1, 0].tolist() == pytest.approx(window)


@pytest.mark.usefixtures("by_hand")
def test_a_sink_takes_its_share_and_gives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "sinks", lambda scenario: np.array([np.log(2.0)], dtype=np.float32))
    sunk = replace(WINDOW, attention=Attention(query_heads=1, kv_heads=1, sinks=True))
    output = attention.outputs(sunk, sunk.rounds[0])

    # Scores are 0, so two seen positions weigh 1 each and the sink weighs 2; three leave (0 + 1 + 2) / 5.
    assert output[:, 0, 0].tolist() == pytest.approx([0.25, 0.6])
    assert output[:, 1, 0].tolist() == pytest.approx([0.25, 0.75])


MLA = replace(VERIFY, target="mla", attention=Attention(query_heads=2, kv_heads=1))


def test_mla_attends_to_latents_with_rope_parts_or_to_what_is_projected_from_them() -> None:
    extend = replace(MLA, algorithm="NONE", mode="extend", draft_tokens=1, rounds=((Request(1, new_tokens=2),),))

    assert attention.outputs(MLA, MLA.rounds[0]).shape == (2, 2, 512)
    assert attention.outputs(extend, extend.rounds[0]).shape == (2, 2, 128)


def test_an_absorbed_query_sees_what_the_projected_keys_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The identity that MLA rests on: projecting a query to the latent is projecting the latent to a key."""
    extend = replace(MLA, algorithm="NONE", mode="extend", draft_tokens=1, rounds=((Request(1, new_tokens=2),),))
    rows = attention.queries(extend, 2)
    weights = attention.projections(extend).astype(np.float64)
    absorbed = np.einsum("qhd,hdl->qhl", rows[..., :128].astype(np.float64), weights[:, :128])
    by_head = attention.outputs(extend, extend.rounds[0])
    monkeypatch.setattr(attention, "queries", lambda scenario, count: np.concatenate([absorbed, rows[..., 128:]], -1))
    latent = attention.outputs(MLA, MLA.rounds[0])

    assert np.einsum("qhl,hdl->qhd", latent, weights[:, 128:]) == pytest.approx(by_head, abs=1e-9)


def test_outputs_do_not_depend_on_where_other_requests_lie() -> None:
    both = replace(VERIFY, rounds=((Request(1), Request(7, row=2)),))
    alone = attention.outputs(VERIFY, VERIFY.rounds[0])

    assert np.array_equal(attention.outputs(both, both.rounds[0])[:2], alone)


def test_queries_of_one_kv_head_share_its_keys() -> None:
    grouped = replace(VERIFY, attention=Attention(query_heads=4, kv_heads=2), pool=Pool(page_size=16))

    assert attention.outputs(grouped, grouped.rounds[0]).shape == (2, 4, 128)
