"""What a bisection answers for one case, as data: the report writes it in words."""

import msgspec

from harness.bisect.bisection import Change, Ends
from harness.bisect.sequential import ERROR, Rates
from harness.scenario.case import Case


class Hunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change of one function that the scenario runs through.

    `lines` is the difference as unified text, beginning at line `start` of the newer file, `ran` counts its changed
    lines that were executed, and `relevance` says how near one of these comes to the field that is wrong.
    """

    file: str
    function: str
    start: int
    lines: tuple[str, ...]
    ran: int
    relevance: int = 0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where one case begins to show, or with `fixed` ceases to.

    `path` is the case file, `ends` what was decided of the older and the newer end. `release` is the change along the
    releases, `commit` that along the commits of a clone; `hunks` are what may have made it, the likeliest first, of
    `changed` functions in all that the scenario runs through.
    """

    case: Case
    path: str
    good: str
    bad: str
    fixed: bool
    ends: Ends
    rates: Rates
    release: Change | None = None
    commit: Change | None = None
    hunks: tuple[Hunk, ...] = ()
    changed: int = 0

    @property
    def change(self) -> Change:
        """The narrowest change that was found."""
        found = self.commit or self.release
        assert found is not None
        return found

    @property
    def judged(self) -> int:
        """Decisions that the answer rests on, the two ends of each line among them."""
        return sum(2 + change.judged for change in (self.release, self.commit) if change is not None)

    @property
    def error(self) -> float:
        """How often such an answer is wrong at most, by chance alone; 0 where one run decides."""
        return 0.0 if self.rates.certain else min(1.0, self.judged * ERROR)
