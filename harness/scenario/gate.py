"""A device-gate scenario: one device name, offered to a speculative algorithm."""

from typing import Literal

import msgspec


class GateScenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gate"):
    """Start-up with `device`: does the release let `algorithm` run there?"""

    device: str
    algorithm: Literal["DFLASH"] = "DFLASH"
