"""A session: one sglang server, the requests that come to it, and when.

Where a metadata scenario says what a worker publishes, a session has the release's own workers publish it. Time is
counted in turns of the scheduler's event loop.
"""

from typing import Literal

import msgspec

from harness.scenario.metadata import Algorithm, Executor

#: What a session runs: a trained pair whose KV heads serve two query heads each (`mha`), or a random model of another
#: kind: a KV head for each query head (`multihead`), window layers in a pool of their own (`swa`), MLA (`mla`).
SessionTarget = Literal["mha", "multihead", "swa", "mla"]
#: Who answers: the scheduler with its workers in one process, or `sglang.Engine` with all its processes.
Subject = Literal["worker", "engine"]
#: The draft model where an algorithm has several: DFlash2 is one under DFLASH (from 0.5.19).
DraftModel = Literal["", "DFLASH2"]
#: Whether the device works in the order of the program, or each of its streams only when somebody waits for it.
Streams = Literal["ordered", "late"]
#: Of a server without another `context_length`.
CONTEXT_LENGTH = 1024
Option = tuple[str, int | float | str | bool]


class Visit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One request.

    Its prompt has `length` tokens: those of the text number `text`, but for the last `own` ones, which no other request
    has; so two visits of one text share all tokens before. Where tokens are `given`, it has these, which are `length`.
    It is handed over at the turn `arrives`, asks for `new_tokens`, and is aborted at the turn `aborted`, if that is not
    0. `temperature` is in percent; 0 is greedy.
    """

    length: int
    new_tokens: int
    text: int = 0
    own: int = 1
    arrives: int = 0
    aborted: int = 0
    temperature: int = 0
    given: tuple[int, ...] = ()


class SessionScenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="session"):
    """Requests (`visits`) that one server answers, by its scheduler alone (`worker`) or by the whole `engine`.

    `options` are server arguments and `environment` switches by their names in sglang; what is not named has the value
    of `harness.scenario.axes`, or else the release's default. `fill` is what every KV slot holds that nobody has
    written since the session began or since the slot was freed. With `gate_lifted`, a release that refuses the device
    for this algorithm is made to start on it.
    """

    algorithm: Algorithm
    visits: tuple[Visit, ...]
    executor: Executor = "eager"
    target: SessionTarget = "mha"
    subject: Subject = "worker"
    options: tuple[Option, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    draft: DraftModel = ""
    streams: Streams = "ordered"
    fill: float = 5.0
    gate_lifted: bool = False

    @property
    def server(self) -> tuple[object, ...]:
        """What a server has to be started anew for; sessions that agree in it can share one."""
        return (
            self.algorithm,
            self.executor,
            self.target,
            self.draft,
            self.subject,
            self.options,
            self.environment,
            self.gate_lifted,
        )


def context_length(scenario: SessionScenario) -> int:
    """Positions that a request of the session can have."""
    return int(dict(scenario.options).get("context_length", CONTEXT_LENGTH))
