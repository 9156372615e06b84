"""Makes flashinfer importable with what sglang's FlashInfer backend imports of it (0.5.15 to 0.5.23)."""

from harness.gpu.modules import put
from harness.gpu.paged_wrapper import (
    BatchDecodeWithPagedKVCacheWrapper,
    BatchPrefillWithPagedKVCacheWrapper,
    fast_decode_plan,
)
from harness.gpu.ragged_wrapper import BatchPrefillWithRaggedKVCacheWrapper, merge_state


def install() -> None:
    """Put the modules before any that are installed."""
    package = put(
        "flashinfer",
        BatchDecodeWithPagedKVCacheWrapper=BatchDecodeWithPagedKVCacheWrapper,
        BatchPrefillWithPagedKVCacheWrapper=BatchPrefillWithPagedKVCacheWrapper,
        BatchPrefillWithRaggedKVCacheWrapper=BatchPrefillWithRaggedKVCacheWrapper,
        fast_decode_plan=fast_decode_plan,
    )
    package.cascade = put("flashinfer.cascade", merge_state=merge_state)  # type: ignore[attr-defined]
