"""The driver of sessions: one server per process, and sessions in, observations out."""

import logging

import torch

from harness.scenario import SessionScenario
from harness.scenario.observation import Fault, Observation, SessionSeen
from harness.scenario.session import Subject
from harness.shadow.overhead import Overhead, measured
from harness.subject.blame import out_of_memory, sglang_error, where
from harness.subject.frames import Observe, Observed
from harness.subject.session import gate, server
from harness.subject.session.arguments import set_environment
from harness.subject.session.engine import EngineFault, EngineGone, EnginePlayer, NotStarted
from harness.subject.session.play import WorkerPlayer

PLAYERS: dict[Subject, type[WorkerPlayer] | type[EnginePlayer]] = {"worker": WorkerPlayer, "engine": EnginePlayer}


def prepare() -> None:
    """Import what a server needs, so that the process can be forked afterwards; the device is not touched."""
    from sglang.srt.managers import scheduler
    from sglang.srt.models.registry import ModelRegistry

    del scheduler
    ModelRegistry.get_supported_archs()


class SessionDriver:
    """Starts a server for the first session that it is given, and plays this and the next ones on it."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        logging.disable(logging.ERROR)
        self.player: WorkerPlayer | EnginePlayer | None = None

    def observe(self, message: Observe) -> Observed:
        """One observation for each session, until one ends its server."""
        observations, overhead = [], Overhead()
        for scenario in message.scenarios:
            assert isinstance(scenario, SessionScenario)
            observation, cost = measured(lambda scenario=scenario: self._observe(scenario))  # type: ignore[misc]
            observations.append(observation)
            overhead += cost
            if self.player is None or self.player.broken:
                return Observed(tuple(observations), last=True, overhead=overhead)
        return Observed(tuple(observations), overhead=overhead)

    def _observe(self, scenario: SessionScenario) -> Observation:
        try:
            if self.player is None:
                set_environment(scenario)
                if scenario.gate_lifted:
                    gate.lift()
                self.player = PLAYERS[scenario.subject](scenario)
            return Observation(session=self.player.play(scenario))
        except server.Refused as refused:
            error = refused.__cause__
            assert isinstance(error, Exception)
            if unknown := server.unknown_option(error):
                return Observation(fault=Fault("unsupported", f"this sglang has no option {unknown}"))
            return Observation(session=SessionSeen(0, error=sglang_error(error)))
        except NotStarted as refused:
            return Observation(session=refused.seen)
        except EngineFault as failure:
            return Observation(fault=Fault("driver", str(failure)))
        except EngineGone:
            raise  # the worker ends with its engine, which is a crash
        except Exception as error:
            if out_of_memory(error):
                raise
            return Observation(fault=Fault("driver", f"{type(error).__name__}: {error} ({where(error)})"))
