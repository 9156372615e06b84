"""The real subject with one fault planted: the first request of every batch counts one KV position too many.

Run as `python reads_too_far.py … PATH DEVICE`, where the dots stand for the command line it replaces.
"""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from harness.subject import __main__ as subject
from harness.subject.ascend import driver
from harness.subject.frames import SubjectInfo

COMMAND = (sys.executable, str(Path(__file__).resolve()))

_prepare = driver.prepare


def prepare(path: str, device: str) -> SubjectInfo:
    """The driver's own, and then the fault, in the lengths that the backend hands to the operators."""
    info = _prepare(path, device)
    from sglang.srt.hardware_backend.npu.attention.ascend_backend import AscendAttnBackend

    right = AscendAttnBackend.init_forward_metadata

    def wrong(self: Any, *arguments: Any) -> None:
        right(self, *arguments)
        self.forward_metadata.seq_lens_cpu_int[0] += 1

    AscendAttnBackend.init_forward_metadata = wrong
    return info


if __name__ == "__main__":
    driver.prepare = prepare
    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()
