"""Whose compiled kernels a backend calls, where they are not sglang's own."""

from collections.abc import Callable
from typing import NamedTuple

from harness.subject.cuda import fa3_kernels, flashinfer_kernels


class Vendor(NamedTuple):
    """The package that has the kernels.

    `require` raises RuntimeError where they cannot run on this GPU, `installed` is their version. Without a GPU sglang
    is imported between `emulate` and `allow`.
    """

    package: str
    require: Callable[[], None]
    installed: Callable[[], str]
    emulate: Callable[[], None]
    allow: Callable[[], None]


#: By the backend; Triton's kernels are sglang's own.
VENDORS = {
    "fa3": Vendor("sgl_kernel", fa3_kernels.require, fa3_kernels.installed, fa3_kernels.emulate, fa3_kernels.allow),
    "flashinfer": Vendor(
        "flashinfer",
        flashinfer_kernels.require,
        flashinfer_kernels.installed,
        flashinfer_kernels.emulate,
        flashinfer_kernels.allow,
    ),
}
