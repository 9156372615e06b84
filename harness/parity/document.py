"""The comparison of two sides as plain data: what `harness compare --json` writes, and reports read."""

from collections import Counter
from typing import Literal

import msgspec

from harness.subject.frames import SubjectInfo

SCHEMA = 1
Verdict = Literal["EQUAL", "WITHIN NOISE", "DIFFERENT", "UNKNOWN"]
#: The worst of several verdicts comes first: a difference is certain, whatever else could not be judged.
WORST_FIRST: tuple[Verdict, ...] = ("DIFFERENT", "UNKNOWN", "WITHIN NOISE", "EQUAL")
#: Reasons for UNKNOWN that a report names.
MOST_REASONS = 5


class Divergence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first place where two sides differ. Everything counts from 0.

    `step` is the round of the scenario (for a draft decode, `draft_step` is the step of the draft), `layer` is `full`
    or `window`, `row` the query of the request. `field` is a field's name or `output`; `a`, `b` and `right` are what
    the sides say and what is right there, for an output their errors against float64 (`right` is then 0).
    """

    scenario: int
    path: str
    step: int
    field: str
    a: float | str
    b: float | str
    right: float | None = None
    draft_step: int | None = None
    layer: str = ""
    request: int | None = None
    row: int | None = None
    message: str = ""


class Errors(msgspec.Struct, frozen=True):
    """How far one side's outputs are from float64: root mean square, largest, largest and mean relative error.

    `within_one_ulp` is the share of values that are one of the two float32 numbers around the exact one, `bound` the
    error up to which a value is noise on that side's device (None: nobody has measured it), `values` how many there
    were.
    """

    values: int
    rms: float
    largest: float
    largest_relative: float
    mean_relative: float
    within_one_ulp: float
    bound: float | None


class ScenarioComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """One scenario: its number, its code path, the longest KV length in it, and the largest error of each side."""

    number: int
    path: str
    kv_length: int
    verdict: Verdict
    reason: str = ""
    largest: tuple[float, float] | None = None


class ComparisonDocument(msgspec.Struct, frozen=True, tag="comparison", tag_field="kind"):
    """Two sides over the same scenarios. `ratio` has each of the errors of `b` over that of `a`, by name."""

    schema: int
    a: SubjectInfo
    b: SubjectInfo
    verdict: Verdict
    counts: dict[str, int]
    errors: tuple[Errors, Errors] | None
    ratio: dict[str, float]
    first: Divergence | None
    scenarios: tuple[ScenarioComparison, ...]

    @property
    def passed(self) -> bool:
        """Whether a history may hold others to this."""
        return self.verdict in ("EQUAL", "WITHIN NOISE")

    @property
    def measured(self) -> dict[str, float]:
        """What a history keeps, by name of the series."""
        values = {f"scenarios {verdict}": float(count) for verdict, count in self.counts.items()}
        for side, errors in zip("ab", self.errors or (), strict=False):
            values |= {f"rms error {side}": errors.rms, f"largest error {side}": errors.largest}
        return values

    @property
    def by_path(self) -> dict[str, Counter[str]]:
        """How many scenarios of each code path got which verdict."""
        paths: dict[str, Counter[str]] = {}
        for one in self.scenarios:
            paths.setdefault(one.path, Counter())[one.verdict] += 1
        return paths

    @property
    def reasons(self) -> list[tuple[str, int]]:
        """Why scenarios could not be judged, and how many: the commonest reasons, which a reader may be shown."""
        unknown = (one.reason for one in self.scenarios if one.verdict == "UNKNOWN")
        return Counter(unknown).most_common(MOST_REASONS)
