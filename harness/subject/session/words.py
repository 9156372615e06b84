"""What a worker and the process of its engine's scheduler say to each other, as msgpack over a pipe of two ends."""

import msgspec

from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario


class Begin(msgspec.Struct, frozen=True):
    """To the scheduler: a session begins. Visits that the engine has `refused` will not come."""

    scenario: SessionScenario
    refused: tuple[int, ...] = ()


class Here(msgspec.Struct, frozen=True, tag=True):
    """From the scheduler: its process runs. If it ends after this without another word, it has crashed."""


class Gathered(msgspec.Struct, frozen=True, tag=True):
    """From the scheduler: every request of the session has come, and is held until its turn."""


class Played(msgspec.Struct, frozen=True, tag=True):
    """From the scheduler: the session as it was seen there; with no turn, and `seen.error`, the server did not start.

    `last`: the server is of no more use. `fault`: what the harness itself could not do in that process.
    """

    seen: SessionSeen
    last: bool = False
    fault: str = ""


Word = Here | Gathered | Played
