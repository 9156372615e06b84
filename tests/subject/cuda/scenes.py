"""Scenarios for the subjects of CUDA's backends, and how far what was observed of one lies from float64."""

import numpy as np
from msgspec.structs import replace

from harness.reference.attention import outputs
from harness.scenario import MetadataScenario, Pool, Request
from harness.scenario.metadata import Attention
from harness.scenario.observation import Observation
from harness.scenario.validity import MODES, why_invalid

#: Modes whose window layers are right with the Triton backend of 0.5.23: a decode sees one position too few.
WINDOW_MODES = ("extend", "target_verify", "draft_block", "draft_extend")


def scenario(
    algorithm: str, mode: str, executor: str, window: int = 0, heads: tuple[int, int] = (4, 2)
) -> MetadataScenario:
    """Two rounds, the second one smaller; replayed, the second is padded."""
    block = 1 if algorithm == "NONE" else 4
    made = MetadataScenario(
        algorithm=algorithm,
        mode=mode,
        executor=executor,
        rounds=(
            (Request(prefix=5, new_tokens=3), Request(prefix=40, row=2, new_tokens=2)),
            (Request(prefix=15, new_tokens=1),),
        ),
        draft_tokens=block,
        step=1 if mode == "draft_decode" else 0,
        target="swa" if window else "mha",
        window=window,
        pool=Pool(page_size=16, context_length=64, page_stride=3),
        buckets=() if executor == "eager" else (2, 4),
        attention=Attention(query_heads=heads[0], kv_heads=heads[1]),
    )
    assert why_invalid(made) == ""
    return made


#: Every mode, eager and replayed, and window layers with and without sinks.
ALL = [
    scenario(algorithm, mode, executor)
    for algorithm in ("NONE", "EAGLE", "NGRAM", "DFLASH", "DSPARK")
    for mode in MODES[algorithm]
    for executor in ("eager", "graph")
    if (mode, executor) != ("extend", "graph")
]
ALL += [replace(ALL[0], attention=Attention(query_heads=2, kv_heads=2))]
ALL += [
    replace(one, target="swa", window=20, attention=Attention(query_heads=4, kv_heads=2, sinks=sinks))
    for one in ALL[:-1]
    for sinks in (False, True)
    if one.mode in WINDOW_MODES and one.algorithm in ("NONE", "EAGLE", "DFLASH")
]


def errors(one: MetadataScenario, observed: Observation) -> list[float]:
    """The largest error of each round."""
    assert (observed.fault, [seen.error for seen in observed.seen if seen.error]) == (None, [])
    return [
        float(np.abs(seen.output.values - outputs(one, batch)).max())  # type: ignore[union-attr]
        for seen, batch in zip(observed.seen, one.rounds, strict=True)
    ]
