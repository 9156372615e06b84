"""The KV pools of a server's models, and what their slots hold that nobody has written."""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.npu.memory import host_view, is_on_device


class Pools:
    """The caches of every model runner of this process, layer by layer."""

    def __init__(self) -> None:
        from sglang.srt.model_executor.model_runner import ModelRunner

        runners = [one for one in gc.get_objects() if isinstance(one, ModelRunner)]
        pools = {id(runner.token_to_kv_pool): runner.token_to_kv_pool for runner in runners}
        self.caches = [cache for pool in pools.values() for cache in _caches(pool)]

    def fill(self, value: float, pages: Sequence[int] | None = None) -> None:
        """Have every slot, or those of `pages`, hold `value`: what nobody has written is not zero."""
        for cache in self.caches:
            if pages is None:
                cache.fill_(value)
            else:
                cache[list(pages)] = value


def _caches(pool: Any) -> Iterator[torch.Tensor]:
    """Views of shape (pages, whatever a page holds) of every layer's caches."""
    pages = int(pool.size) // int(pool.page_size) + 1
    for name in ("k_buffer", "v_buffer"):
        for layer in getattr(pool, name, ()):
            yield (host_view(layer) if is_on_device(layer) else layer).view(pages, -1)
