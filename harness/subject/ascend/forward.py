"""Attention really runs: the backend's own forward over real pools, with the sanitizer at the operator boundary."""

from typing import Any

import numpy as np
import torch

from harness.npu.boundary import Event, listening
from harness.scenario import MetadataScenario, PageMap, Request
from harness.scenario.content import HEAD_SIZE, Values, keys, queries, slots, values
from harness.scenario.observation import BadAccess, Floats
from harness.shadow.record import Shadow
from harness.subject.ascend.batch import new_positions
from harness.subject.ascend.pools import Pools


class Forward:
    """The forward of one round: fill the pool, write what is committed, run, and watch every access."""

    def __init__(self, scenario: MetadataScenario, pools: Pools, device: str) -> None:
        self.pools = pools
        self.device = device
        self.layer = _layer(scenario)
        self.accesses: list[BadAccess] = []

    def prepare(self, scenario: MetadataScenario, batch: tuple[Request, ...]) -> None:
        """Put the pool into the state before the step: what came before is written, all else holds the fill."""
        assert scenario.attention is not None
        pool = self.pools.kv_pool
        for buffer in (pool.get_key_buffer(0), pool.get_value_buffer(0)):
            buffer.fill_(scenario.attention.fill)
        self.accesses = []
        self.shadow = _shadow(scenario, batch, self.pools.pages + 1)
        starts, _ = new_positions(scenario, batch)
        for request, start in zip(batch, starts, strict=True):
            self._write(scenario, slots(scenario, request.row, range(start)))

    def run(self, scenario: MetadataScenario, batch: tuple[Request, ...], backend: Any, forward_batch: Any) -> Floats:
        """Attention of one round; what the sanitizer objects to is in `accesses`, also where the operator raises.

        Called as `RadixAttention.forward` calls it: queries flat, keys and values by head.
        """
        starts, counts = new_positions(scenario, batch)
        new = [
            slots(scenario, request.row, range(start, start + count))
            for request, start, count in zip(batch, starts, counts, strict=True)
        ]
        written = np.concatenate(new)
        rows = queries(scenario, len(written))
        self.shadow.begin_step([request.row for request in batch], [request.prefix for request in batch])
        one = backend.attn_backends[scenario.step] if scenario.mode == "draft_decode" else backend
        run = one.forward_decode if scenario.mode in ("decode", "draft_decode") else one.forward_extend
        with listening(self._watch):
            output = run(
                self._tensor(rows).flatten(1),
                self._tensor(keys(scenario, written)),
                self._tensor(values(scenario, written)),
                self.layer,
                forward_batch,
            )
        return Floats.of(output.float().cpu().numpy().reshape(rows.shape))

    def _watch(self, event: Event) -> None:
        """Note what is wrong with an access once, although keys and values are two caches with the same slots."""
        for violation in self.shadow.check(event):
            access = BadAccess(violation.kind, violation.sentence(), violation.consequence)
            if access not in self.accesses:
                self.accesses.append(access)

    def _write(self, scenario: MetadataScenario, own: np.ndarray) -> None:
        pool = self.pools.kv_pool
        places = torch.from_numpy(own).to(self.device)
        for buffer, content in ((pool.get_key_buffer(0), keys), (pool.get_value_buffer(0), values)):
            heads = scenario.attention.kv_heads if scenario.attention else 1
            buffer.view(-1, heads, HEAD_SIZE)[places] = self._tensor(content(scenario, own))

    def _tensor(self, content: Values) -> torch.Tensor:
        return torch.from_numpy(content.copy()).to(self.device)


def _shadow(scenario: MetadataScenario, batch: tuple[Request, ...], cache_pages: int) -> Shadow:
    """Every row owns the pages of its prefix and of two blocks beyond it, as the scheduler reserves them.

    Written is what came before the step: the committed prefix, and what earlier steps of a multi-step draft wrote.
    """
    pages = PageMap(scenario)
    shadow = Shadow(cache_pages, scenario.pool.page_size)
    starts, _ = new_positions(scenario, batch)
    for request, start in zip(batch, starts, strict=True):
        reserved = request.prefix + max(request.new_tokens, 2 * scenario.draft_tokens)
        table = pages.table(request.row, reserved)
        shared = min(pages.shared, len(table))
        shadow.reserve(request.row, table[:shared], shared=True)
        shadow.reserve(request.row, table[shared:], first_position=shared * scenario.pool.page_size)
        shadow.wrote(slots(scenario, request.row, range(start)))
    return shadow


def _layer(scenario: MetadataScenario) -> Any:
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention

    assert scenario.attention is not None
    draft = scenario.mode == "draft_block"
    return RadixAttention(
        num_heads=scenario.attention.query_heads,
        head_dim=HEAD_SIZE,
        scaling=HEAD_SIZE**-0.5,
        num_kv_heads=scenario.attention.kv_heads,
        layer_id=0,
        attn_type=AttentionType.ENCODER_ONLY if draft else AttentionType.DECODER,
    )
