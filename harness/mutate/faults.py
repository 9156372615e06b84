"""Faults of the catalogue of public reports, planted: small changes of the real source, each with its scenario."""

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

import msgspec

import harness
from harness.checks.check import Check
from harness.errors import CannotJudge, UsageError
from harness.mutate.judging import Subject, Word, alone
from harness.mutate.scenes import Draw, Layer, drawn
from harness.scenario import MetadataScenario, Scenario
from harness.scenario.pinned import pinned_cases
from harness.subject.patch import Definition, Patch
from harness.subject.supervisor import Supervisor

#: Beside the package in a clone; an installed wheel has none.
FOLDER = Path(harness.__file__).parent.parent / "fixtures" / "faults"


class KnownFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`find` stands once in `function` of `file`, and `replace` in its place makes the fault that `about` tells of.

    `reports` are numbers of the catalogue. The pinned case `case` shows the fault to `check`, which is of `layer`, the
    cheapest that can see it.
    """

    name: str
    about: str
    reports: tuple[str, ...]
    file: str
    function: str
    find: str
    replace: str
    case: str
    check: str
    layer: Layer

    def patch(self, sglang: Path) -> Patch:
        """The fault for a subject; raises UsageError where the text does not stand there once."""
        source = (sglang / self.file).read_text(encoding="utf-8")
        text = Definition(source, self.function).text(source)
        if text.count(self.find) != 1:
            raise UsageError(
                f"the fault {self.name} cannot be planted in {sglang}: its text stands {text.count(self.find)} times "
                f"in {self.function}, and not once."
            )
        return Patch(self.file, self.function, text.replace(self.find, self.replace))


class KnownFaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults that can be planted in `release`."""

    release: str
    faults: tuple[KnownFault, ...]


def known_faults(folder: Path = FOLDER) -> KnownFaults:
    """All of them; raises UsageError where the file is not there or is none."""
    path = folder / "faults.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=KnownFaults)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} holds no faults: {error}.") from error


class Caught(msgspec.Struct, frozen=True):
    """A fault, and the checks that say of its case what they do not say of it without the fault."""

    name: str
    about: str
    reports: tuple[str, ...]
    layer: Layer
    check: str
    by: tuple[str, ...]

    @property
    def as_it_should(self) -> bool:
        """Whether the check that it names is among them."""
        return self.check in self.by


def said(
    supervisor: Supervisor, faults: Sequence[KnownFault], scenario: Scenario, checks: Sequence[Check]
) -> list[set[Word]]:
    """What `checks` say of the scenario with each fault, and not without it."""
    (right,) = Subject(supervisor).words(checks, [scenario])
    found = []
    for fault in faults:
        (wrong,) = Subject(supervisor, fault.patch(Path(supervisor.source.path))).words(checks, [scenario])
        found.append(set(wrong) - set(right))
    return found


def caught(supervisor: Supervisor, name: str, faults: Sequence[KnownFault], checks: Sequence[Check]) -> list[Caught]:
    """What the checks say of `faults`, whose own case is `name`; raises UsageError where the case is not pinned."""
    pinned = pinned_cases()
    if name not in pinned:
        raise UsageError(f"the fault {faults[0].name} names the case {name}, which is not pinned.")
    found = said(supervisor, faults, pinned[name].scenario, checks)
    return [
        Caught(
            fault.name,
            fault.about,
            fault.reports,
            fault.layer,
            fault.check,
            tuple(sorted({word.check for word in words if not word.unknown})),
        )
        for fault, words in zip(faults, found, strict=True)
    ]


#: Hypothesis draws for one thread at a time.
_DRAWING = Lock()
#: The bug that began this project, and the scenarios that go through its code.
DOUBLE_COUNT = "block-added-twice-eager"


class Detection(msgspec.Struct, frozen=True):
    """How many scenarios it took, drawn by one seed, one of each cell in turns: all, and those of the fault's code."""

    seed: int
    scenarios: int
    own: int


def double_count(supervisor: Supervisor, fault: KnownFault, checks: Sequence[Check], seed: int) -> Detection:
    """When the double count is caught. Raises CannotJudge where it is not."""
    subject = Subject(supervisor, fault.patch(Path(supervisor.source.path)))
    with _DRAWING:
        scenes = [scene.scenario for scene in drawn(supervisor.info.capabilities, Draw(3, 0, seed))]
    own = 0
    for number, scenario in enumerate(scenes, 1):
        if not _runs_the_double_count(scenario):
            continue  # the fault changes nothing here
        own += 1
        (words,) = subject.words(alone(checks), [scenario])
        if any(word.fingerprint.endswith("block-added-again") for word in words):
            return Detection(seed, number, own)
    raise CannotJudge(f"the double count was not caught by the scenarios of seed {seed}.")


def _runs_the_double_count(scenario: Scenario) -> bool:
    if not isinstance(scenario, MetadataScenario) or scenario.algorithm != "DFLASH":
        return False
    return scenario.executor == "eager" and scenario.mode in ("target_verify", "draft_block")
