"""A start-up scenario: one device name, and options beside it, offered to a speculative algorithm."""

from typing import Literal

import msgspec


class GateScenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gate"):
    """Start-up with `device`: does the release let `algorithm` run there?

    Without `draft` no draft model is named, and the start goes no further than that. With it, a draft model is named
    whose configuration gives this block size (0: it gives none), and `options`, server arguments by their names in
    sglang, are settled.
    """

    device: str
    algorithm: Literal["DFLASH"] = "DFLASH"
    draft: int | None = None
    options: tuple[tuple[str, int | str], ...] = ()
