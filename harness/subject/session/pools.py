"""The KV pools of a server's models, and what their slots hold that nobody has written."""

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from harness.npu.memory import host_view, is_on_device


class Pools:
    """The caches of every model runner of this process, layer by layer; those of window layers may be apart."""

    def __init__(self) -> None:
        from sglang.srt.model_executor.model_runner import ModelRunner

        runners = [one for one in gc.get_objects() if isinstance(one, ModelRunner)]
        pools = {id(runner.token_to_kv_pool): runner.token_to_kv_pool for runner in runners}
        full = [getattr(pool, "full_kv_pool", pool) for pool in pools.values()]
        windows = [pool.swa_kv_pool for pool in pools.values() if hasattr(pool, "swa_kv_pool")]
        self._full = [cache for pool in full for cache in _caches(pool)]
        self._windows = [cache for pool in windows for cache in _caches(pool)]
        page_size = int(full[0].page_size)
        #: How many numbers each cache, by its address, has for one slot.
        self.widths = {cache.data_ptr(): cache.shape[1] // page_size for cache in self._full + self._windows}
        #: The addresses of the caches whose slots are those of a window's pool.
        self.windows = frozenset(cache.data_ptr() for cache in self._windows)

    def fill(self, value: float) -> None:
        """Have every slot hold `value`: what nobody has written is not zero."""
        for cache in self._full + self._windows:
            cache.fill_(value)

    def fill_pages(self, value: float, pages: Sequence[int], window: bool) -> None:
        """Have the slots of `pages` hold `value`, in the window's pool or in all others."""
        for cache in self._windows if window else self._full:
            cache[list(pages)] = value


def _caches(pool: Any) -> Iterator[torch.Tensor]:
    """Views of shape (pages, whatever a page holds) of every layer's caches."""
    pages = int(pool.size) // int(pool.page_size) + 1
    for name in ("k_buffer", "v_buffer"):
        for layer in getattr(pool, name, ()):
            yield (host_view(layer) if is_on_device(layer) else layer).view(pages, -1)
