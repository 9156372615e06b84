"""How much of its draft each sglang accepts, on the same visits and the same trained models."""

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple, get_args

from msgspec.structs import replace

from harness.checks.session_answers import first_difference
from harness.errors import CannotJudge
from harness.models.prompts import texts
from harness.scenario.metadata import Algorithm, Executor
from harness.scenario.observation import SessionSeen
from harness.scenario.session import SessionScenario, Visit
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor

#: In the sentence by which a release refuses a device.
REFUSED = "device"
#: Algorithms that have a trained draft.
DRAFTED: tuple[Algorithm, ...] = ("DFLASH", "EAGLE")
#: Tokens that each visit asks for.
NEW_TOKENS = 48


def visits() -> tuple[Visit, ...]:
    """A visit for every text of the trained pair, more than a batch holds, so that some queue."""
    return tuple(
        Visit(len(text), NEW_TOKENS, text=number, own=0, arrives=number) for number, text in enumerate(texts())
    )


class Accepted(NamedTuple):
    """What one sglang accepted: tokens of each verify, bonus included, over all visits (a ratio of sums).

    `wrong` counts visits whose answer is not the target's own; `refusal` and `error` say how the server did not start,
    or ended. With a refusal of the device, the rest is what it does with that gate lifted.
    """

    release: str
    algorithm: Algorithm
    executor: Executor
    tokens: int = 0
    verifies: int = 0
    wrong: int = 0
    refusal: str = ""
    error: str = ""

    @property
    def length(self) -> float | None:
        """The acceptance length, or None where nothing was verified."""
        return self.tokens / self.verifies if self.verifies else None


def acceptance(
    sources: Sequence[Source], algorithms: Sequence[Algorithm], progress: Callable[[str], None]
) -> list[Accepted]:
    """The acceptance of every source, algorithm and executor."""
    found = []
    for source in sources:
        with Supervisor(source) as supervisor:
            for algorithm, executor in product(algorithms, get_args(Executor)):
                progress(f"sglang {source.release}: {algorithm} {executor}")
                found.append(_accepted(supervisor, SessionScenario(algorithm, visits(), executor)))
    return found


def _accepted(supervisor: Supervisor, scenario: SessionScenario) -> Accepted:
    """Play the session; where the release refuses the device, with that gate lifted."""
    seen = _seen(supervisor, scenario)
    refusal = ""
    if not seen.turns and REFUSED in seen.error:
        refusal = seen.error
        scenario = replace(scenario, gate_lifted=True)
        seen = _seen(supervisor, scenario)
    differences = [first_difference(scenario, visit, got) for visit, got in enumerate(seen.answers)]
    return Accepted(
        supervisor.info.release,
        scenario.algorithm,
        scenario.executor,
        sum(got.committed for got in seen.answers),
        sum(got.verifies for got in seen.answers),
        len(differences) - differences.count(None),
        refusal,
        seen.error,
    )


def _seen(supervisor: Supervisor, scenario: SessionScenario) -> SessionSeen:
    (observation,) = supervisor.observe([scenario])
    if observation.session is None:
        fault = observation.fault
        raise CannotJudge(f"sglang {supervisor.info.release} played no session: {fault.reason if fault else 'no word'}")
    return observation.session
