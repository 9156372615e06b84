"""The FlashAttention subject with one fault planted in sglang.

Run as `python planted_fa3.py FAULT … PATH DEVICE`, where the dots stand for the command line it replaces.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from msgspec.structs import replace

from harness.subject import __main__ as subject
from harness.subject.cuda import prepare as cuda
from harness.subject.frames import SubjectInfo


def command(fault: str) -> tuple[str, ...]:
    """What starts the subject with `fault`, `not-causal`, a name of `FAULTS`, or `half`: no fault, but float16."""
    return (sys.executable, str(Path(__file__).resolve()), fault)


def _outside(metadata: Any) -> None:
    metadata.page_table[0, 0] = 10_000


def _too_long(metadata: Any) -> None:
    metadata.cache_seqlens_int32[0] += 1_000


def _short(metadata: Any) -> None:
    metadata.cache_seqlens_int32[0] -= 1


def _too_narrow(metadata: Any) -> None:
    metadata.max_seq_len_q = 1


#: What is done to the metadata of every eager batch.
FAULTS: dict[str, Callable[[Any], None]] = {
    "outside": _outside,
    "too-long": _too_long,
    "short": _short,
    "too-narrow": _too_narrow,
}
_imported = cuda.imported


def _imported_with(fault: str) -> Callable[[str, str], SubjectInfo]:
    def imported(path: str, device: str) -> SubjectInfo:
        info = _imported(path, device)
        if fault == "half":
            return replace(info, dtype="float16")
        from sglang.srt.layers.attention.flashattention_backend import AttentionType, FlashAttentionBackend

        if fault == "not-causal":
            forward = FlashAttentionBackend.forward_extend

            def blind(self: Any, q: Any, k: Any, v: Any, layer: Any, *arguments: Any, **options: Any) -> Any:
                layer.attn_type = AttentionType.ENCODER_ONLY
                return forward(self, q, k, v, layer, *arguments, **options)

            FlashAttentionBackend.forward_extend = blind
            return info
        right = FlashAttentionBackend.init_forward_metadata

        def wrong(self: Any, *arguments: Any) -> None:
            right(self, *arguments)
            FAULTS[fault](self.forward_metadata)

        FlashAttentionBackend.init_forward_metadata = wrong
        return info

    return imported


if __name__ == "__main__":
    cuda.imported = _imported_with(sys.argv[1])
    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()
