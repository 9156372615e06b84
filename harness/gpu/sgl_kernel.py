"""Makes sgl_kernel importable with what is emulated of it; the rest of it is as if it were not installed."""

from typing import Any, NoReturn

from harness.gpu.flash_attention import flash_attn_with_kvcache
from harness.gpu.modules import put
from harness.gpu.schedule import get_scheduler_metadata


def merge_state_v2(*arguments: Any, **options: Any) -> NoReturn:
    """Refuse: it joins the two parts of a tree's attention, and scenarios have chains."""
    raise NotImplementedError("merge_state_v2 is not emulated (see harness/gpu)")


def flash_attn_varlen_func(*arguments: Any, **options: Any) -> NoReturn:
    """Refuse: sglang attends without a cache for embeddings, and for MLA's prefill."""
    raise NotImplementedError("flash_attn_varlen_func is not emulated (see harness/gpu)")


def install() -> None:
    """Put the modules that sglang's FlashAttention backend imports before any that are installed (0.5.15 to 0.5.23)."""
    package = put("sgl_kernel", merge_state_v2=merge_state_v2)
    package.flash_attn = put(  # type: ignore[attr-defined]
        "sgl_kernel.flash_attn",
        flash_attn_varlen_func=flash_attn_varlen_func,
        flash_attn_with_kvcache=flash_attn_with_kvcache,
        get_scheduler_metadata=get_scheduler_metadata,
    )
