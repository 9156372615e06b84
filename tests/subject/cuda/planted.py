"""The Triton subject with one fault planted in sglang.

Run as `python planted.py … PATH DEVICE`, where the dots stand for the command line it replaces.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from harness.subject import __main__ as subject
from harness.subject.cuda import prepare as cuda
from harness.subject.frames import SubjectInfo

COMMAND = (sys.executable, str(Path(__file__).resolve()))

_imported = cuda.imported


def _imported_with_a_fault(path: str, device: str) -> SubjectInfo:
    """The driver's own, and then the first request of every eager batch does not see its first position."""
    info = _imported(path, device)
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

    right = TritonAttnBackend.init_forward_metadata

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.forward_metadata.kv_indptr[0] += 1

    TritonAttnBackend.init_forward_metadata = wrong
    return info


if __name__ == "__main__":
    cuda.imported = _imported_with_a_fault
    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()
