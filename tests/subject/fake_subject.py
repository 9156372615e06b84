"""A subject without sglang: the real `harness.subject` over an ideal driver that misbehaves when asked to.

Run as `python fake_subject.py … PATH DEVICE`, where the dots stand for the command line it replaces. PATH may be a
`Start`, and the device of a gate scenario a `Misdeed` or a `Question`. Whoever answers a session says with it which
process it is; a session without visits kills it.
"""

import mmap
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import ModuleType

sys.path.insert(0, str(Path(__file__).parents[2]))

from msgspec.structs import replace

from harness.scenario import GateScenario, MetadataScenario, Scenario, SessionScenario
from harness.scenario.observation import Observation
from harness.scenario.session import Visit
from harness.shadow.overhead import Overhead
from harness.subject.frames import PREFIX, Hello, Observe, Observed, SubjectInfo
from harness.subject.template import MOST_WORKERS
from tests.ideal import observation

#: What the supervisor reads; kept here because `harness.subject` hides it from the driver.
REAL_STDOUT = os.dup(1) if __name__ == "__main__" else -1

COMMAND = (sys.executable, str(Path(__file__).resolve()))


class Start(Enum):
    """How a start goes wrong."""

    DIES = "dies while starting"
    TALKS = "greets with plain text"
    SAYS_NOTHING = "says hello without a word"
    CANNOT_IMPORT = "fails to import sglang"
    HANGS = "never says hello"
    USELESS = "starts well, and is killed by whatever it is asked"


class Misdeed(Enum):
    """What a worker does instead of answering; all but `PRINTS`, `SHORT` and `LAST` cost it, and its observation."""

    KILLED = "is killed"
    EXITS = "exits with status 7"
    RAISES = "raises"
    HANGS = "hangs"
    EATS_MEMORY = "takes more memory than it may have"
    PRINTS = "prints on stdout"
    SHORT = "answers one too few"
    LAST = "answers, and has lost its device"
    KILLS_TEMPLATE = "kills its template"
    STOPS_TEMPLATE = "stops its template"
    CUTS_FRAME = "cuts a frame"
    TALKS = "writes plain text between frames"
    NO_MESSAGE = "sends a frame that is no message"
    HANGS_UP = "closes its connection and stays"


class Question(Enum):
    """What a worker tells about itself as the verdict of a gate scenario."""

    WORKER = "which process are you?"
    TEMPLATE = "which process is your parent?"
    CHILD = "which process have you started?"
    IMPORTED = "was the module of the fortune there before you imported it?"


def scenario(asked: Misdeed | Question) -> GateScenario:
    """The scenario that asks the fake for something."""
    return GateScenario(asked.value)


def killed(times: int, name: str = "") -> GateScenario:
    """A scenario whose worker is killed as many times as it is asked first, and then answers."""
    return GateScenario(f"is killed {times} times {name}".strip())


#: Sessions that need a server each, more than a template keeps beside the worker of all other scenarios.
SESSIONS = [
    SessionScenario("NONE", (Visit(1, 1),), options=(("page_size", size),)) for size in range(1, MOST_WORKERS + 2)
]


def fatal(session: SessionScenario) -> SessionScenario:
    """A session on the same server that kills its worker."""
    return replace(session, visits=())


#: How many times the workers of this template were killed in a row; shared with them.
KILLED_SO_FAR = mmap.mmap(-1, 1)


def prepare(path: str, device: str) -> SubjectInfo:
    """Stands in for the driver's `prepare`."""
    match path:
        case Start.DIES.value:
            print("something on stderr\nthe last words of a subject", file=sys.stderr, flush=True)
            os._exit(3)
        case Start.TALKS.value:
            os.write(REAL_STDOUT, b"Welcome to a login shell, which greets on stdout\n")
        case Start.SAYS_NOTHING.value:
            import msgspec

            hello = msgspec.msgpack.encode(Hello())
            os.write(REAL_STDOUT, PREFIX.pack(len(hello)) + hello)
        case Start.CANNOT_IMPORT.value:
            raise ImportError("no module named sglang\nand more lines")
        case Start.HANGS.value:
            time.sleep(3600)
    return SubjectInfo("ascend", "", device, {"python": sys.version.split()[0]}, ("DFLASH", "EAGLE"))


class Driver:
    """Stands in for the driver of sglang."""

    def __init__(self, info: SubjectInfo) -> None:
        self.info = info

    def observe(self, message: Observe) -> Observed:
        """What `tests.ideal` observes, unless a scenario asks for another deed; those of metadata took two seconds."""
        if Start.USELESS.value in sys.argv:
            _be_killed()
        watched = sum(isinstance(one, MetadataScenario) for one in message.scenarios)
        cost = Overhead(watched=2.0 * watched, sanitizer=0.5 * watched)
        answers: tuple[Observation, ...] = ()
        for one in message.scenarios:
            answers += (answer(one),)
            if one == scenario(Misdeed.LAST):
                return Observed(answers, last=True, overhead=cost)
        return Observed(answers[1:] if scenario(Misdeed.SHORT) in message.scenarios else answers, overhead=cost)


class SessionDriver:
    """Stands in for the driver of sessions: one for each server."""

    def observe(self, message: Observe) -> Observed:
        """What `tests.ideal` observes."""
        answers = []
        for one in message.scenarios:
            assert isinstance(one, SessionScenario)
            if not one.visits:
                _be_killed()
            answers.append(replace(observation(one), verdict=str(os.getpid())))
        return Observed(tuple(answers))


def answer(one: Scenario) -> Observation:
    """One observation, or a misdeed."""
    device = one.device if isinstance(one, GateScenario) else ""
    if device == Question.WORKER.value:
        return Observation(verdict=str(os.getpid()))
    if device == Question.TEMPLATE.value:
        return Observation(verdict=str(os.getppid()))
    if device == Question.CHILD.value:
        return Observation(verdict=str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]).pid))
    if device == Question.IMPORTED.value:
        there = "this" in sys.modules
        import this  # noqa: F401 (what a worker may be the first to need)

        return Observation(verdict=str(there))
    if times := re.match(r"is killed (\d+) times", device):
        if KILLED_SO_FAR[0] < int(times[1]):
            KILLED_SO_FAR[0] += 1
            _be_killed()
        KILLED_SO_FAR[0] = 0
    misbehave: Callable[[], object] = DEEDS.get(device, lambda: None)
    misbehave()
    return observation(one)


def _be_killed() -> None:
    print("the last words of a worker", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def _hang() -> None:
    print("a worker hangs", file=sys.stderr, flush=True)
    time.sleep(3600)


def _eat_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
    bytearray(1 << 40)


def _raise() -> None:
    raise RuntimeError("a driver that raises")


def _print() -> None:
    print("garbage", flush=True)
    os.write(1, b"\x07\x00\x00\x00garbage")


def _kill_template() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(3600)


def _stop_template() -> None:
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(3600)


def _cut_frame() -> None:
    os.write(REAL_STDOUT, PREFIX.pack(100) + b"half of a fr")
    _kill_template()


def _send_no_message() -> None:
    os.write(REAL_STDOUT, PREFIX.pack(10) + b"no message")


def _talk() -> None:
    os.write(REAL_STDOUT, b"plain text")


def _hang_up() -> None:
    os.closerange(3, 256)
    time.sleep(3600)


DEEDS: dict[str, Callable[[], object]] = {
    Misdeed.KILLED.value: _be_killed,
    Misdeed.EXITS.value: lambda: os._exit(7),
    Misdeed.RAISES.value: _raise,
    Misdeed.HANGS.value: _hang,
    Misdeed.EATS_MEMORY.value: _eat_memory,
    Misdeed.PRINTS.value: _print,
    Misdeed.KILLS_TEMPLATE.value: _kill_template,
    Misdeed.STOPS_TEMPLATE.value: _stop_template,
    Misdeed.CUTS_FRAME.value: _cut_frame,
    Misdeed.TALKS.value: _talk,
    Misdeed.NO_MESSAGE.value: _send_no_message,
    Misdeed.HANGS_UP.value: _hang_up,
}


def main() -> None:
    """Serve as `python -m harness.subject` does, with this module in the place of sglang's drivers."""
    ascend = ModuleType("harness.subject.ascend.driver")
    ascend.__dict__.update(Driver=Driver, prepare=prepare)
    session = ModuleType("harness.subject.session.driver")
    session.__dict__.update(SessionDriver=SessionDriver, prepare=lambda: None)
    sys.modules |= {stand_in.__name__: stand_in for stand_in in (ascend, session)}

    from harness.subject import __main__ as subject

    sys.argv = [sys.argv[0], *sys.argv[-2:]]
    subject.main()


if __name__ == "__main__":
    main()
