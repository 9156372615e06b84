"""sglang's attention backends for CUDA, by the name of the subject that runs them, and what differs between them."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import torch

from harness.scenario.metadata import MetadataScenario


class Backend(NamedTuple):
    """The classes of one backend in `module`.

    `lengths` says how many positions each of so many requests sees, `context` how many the model is said to have,
    `windows` whether window layers run, too.
    """

    module: str
    single: str
    multi_step: str
    lengths: Callable[[Any, int], torch.Tensor]
    context: Callable[[MetadataScenario], int]
    windows: bool = True

    def make(self, model_runner: Any, draft_steps: int) -> Any:
        """A backend; with `draft_steps` that of a draft of so many steps and one branch (0.5.15 to 0.5.23)."""
        module = import_module(self.module)
        if draft_steps:
            return getattr(module, self.multi_step)(model_runner, 1, draft_steps)
        return getattr(module, self.single)(model_runner)


def _of_offsets(metadata: Any, requests: int) -> torch.Tensor:
    """Positions of the cache, and new ones that a forward adds; a decode writes its token first and counts it, too."""
    lengths: torch.Tensor = metadata.kv_indptr[: requests + 1].diff()
    if metadata.qo_indptr is not None:
        lengths = lengths + metadata.qo_indptr[: requests + 1].diff()
    return lengths


def _with_reserve(scenario: MetadataScenario) -> int:
    """Triton's and FlashInfer's buffers are as large as the context, and kernels would write past them in silence."""
    return scenario.capacity


def _of_model(scenario: MetadataScenario) -> int:
    """FlashAttention's tables have a row for each request, and what lies beyond its end is seen."""
    return scenario.pool.context_length


def _of_cache(metadata: Any, requests: int) -> torch.Tensor:
    """FlashAttention reads new tokens from the cache, too: what counts is how long it takes the cache to be."""
    lengths: torch.Tensor = metadata.cache_seqlens_int32[:requests]
    return lengths


def _of_wrappers(metadata: Any, requests: int) -> torch.Tensor:
    """Slots that FlashInfer's wrapper for all positions reads, and new keys that lie side by side beside them."""
    decode = hasattr(metadata, "decode_wrappers")
    wrapper = (metadata.decode_wrappers if decode else metadata.prefill_wrappers)[-1]
    lengths: torch.Tensor = wrapper._paged_kv_indptr_buf[: requests + 1].diff()
    if not decode and metadata.use_ragged:
        lengths = lengths + wrapper._qo_indptr_buf[: requests + 1].diff()
    return lengths


_FOLDER = "sglang.srt.layers.attention"
BACKENDS = {
    "triton": Backend(
        f"{_FOLDER}.triton_backend", "TritonAttnBackend", "TritonMultiStepDraftBackend", _of_offsets, _with_reserve
    ),
    "fa3": Backend(
        f"{_FOLDER}.flashattention_backend",
        "FlashAttentionBackend",
        "FlashAttentionMultiStepBackend",
        _of_cache,
        _of_model,
    ),
    "flashinfer": Backend(
        f"{_FOLDER}.flashinfer_backend",
        "FlashInferAttnBackend",
        "FlashInferMultiStepDraftBackend",
        _of_wrappers,
        _with_reserve,
        windows=False,
    ),
}
