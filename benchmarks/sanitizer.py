"""What the sanitizer adds to the emulated operators of a verify and of a decode, each turn with and without it."""

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np
import torch

from benchmarks.measures import Measure
from harness.conformance.batch import Batch, make_batch
from harness.npu.boundary import Event, listening
from harness.npu.cache_writes import _npu_reshape_and_cache, npu_scatter_nd_update_
from harness.npu.fused_attention import npu_fused_infer_attention_score
from harness.npu.paged_attention import _npu_flash_attention_qlens, _npu_paged_attention
from harness.shadow.record import Shadow

REQUESTS, POSITIONS, BLOCK, PAGE = 4, 4096, 16, 128
ROWS = range(1, REQUESTS + 1)


class Steps:
    """The writes and the attention of a verify, and the attention of a decode, by both families of operators.

    Four requests of 4 096 positions each, blocks of 16, pages of 128, 2 query heads of 128 for one KV head, float32.
    """

    def __init__(self) -> None:
        lengths = (POSITIONS,) * REQUESTS
        made: Batch = make_batch(
            (BLOCK,) * REQUESTS, lengths, PAGE, 2, 1, dtype=torch.float32, dimension=128, around=3.0
        )
        pages = made.table[:, : POSITIONS // PAGE].numpy().astype(np.int64)
        self.slots = (pages[:, :, np.newaxis] * PAGE + np.arange(PAGE)).reshape(REQUESTS, POSITIONS)
        self.places = torch.from_numpy(self.slots[:, -BLOCK:].flatten())
        self.rows = torch.zeros(len(self.places), 1, 128)
        self.made = made
        self.extending, self.fused = made.qlens(), made.fused()
        last = made._replace(query_lengths=(1,) * REQUESTS, query=made.query[:REQUESTS])
        self.single, self.padded = last.single(), last.padded()
        self.shadow = Shadow(len(made.key), PAGE)
        for row, own in zip(ROWS, pages, strict=True):
            self.shadow.reserve(row, own)
        self.shadow.wrote(self.slots[:, :-BLOCK])

    def verify_by_atb(self) -> None:
        """Without ASCEND_USE_FIA."""
        _npu_reshape_and_cache(self.rows, self.rows, self.made.key, self.made.value, self.places)
        _npu_flash_attention_qlens(**self.extending)

    def verify_by_fia(self) -> None:
        """With ASCEND_USE_FIA=1."""
        for cache in (self.made.key, self.made.value):
            npu_scatter_nd_update_(cache.view(-1, 1, 128), self.places.view(-1, 1), self.rows)
        npu_fused_infer_attention_score(**self.fused)

    def decode_by_atb(self) -> None:
        """Attention of one query per request, where a verify has written."""
        _npu_paged_attention(**self.single)

    def decode_by_fia(self) -> None:
        """The same with ASCEND_USE_FIA=1."""
        npu_fused_infer_attention_score(**self.padded)

    def watched(self, step: Callable[[], None]) -> None:
        """`step` with the sanitizer, which must not object to anything."""

        def watch(event: Event) -> None:
            if violations := self.shadow.check(event):
                raise AssertionError(violations[0].sentence())

        with listening(watch):
            self.shadow.begin_step(list(ROWS), [POSITIONS - BLOCK] * REQUESTS)
            step()


def overhead(turns: int) -> list[Measure]:
    """The time of each step with the sanitizer, as a ratio to that without it; the first turn is not counted."""
    steps, measures = Steps(), []
    for step in (steps.verify_by_atb, steps.verify_by_fia, steps.decode_by_atb, steps.decode_by_fia):
        plain, watched = [], []
        for _ in range(turns + 1):
            for times, run in ((plain, step), (watched, partial(steps.watched, step))):
                start = time.perf_counter()
                run()
                times.append(time.perf_counter() - start)
        name = step.__name__.replace("_", " ")
        ratio = median(watched[1:]) / median(plain[1:])
        measures += [
            Measure(f"sanitizer: {name}, {REQUESTS} x {POSITIONS} positions, per unwatched", ratio, "", 1.5, "less"),
            Measure(f"{name}, unwatched", median(plain[1:]) * 1e3, "ms", 0, "less"),
        ]
    return measures
