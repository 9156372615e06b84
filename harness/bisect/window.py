"""Where to look next between two ends that differ, although some revisions between them cannot be judged."""

import math
from typing import NamedTuple


class Window(NamedTuple):
    """Places in a line of revisions, oldest first: `before` has not changed yet, `after` has, `skipped` are unknown."""

    before: int
    after: int
    skipped: frozenset[int] = frozenset()

    @property
    def open(self) -> list[int]:
        """The places between the ends that may still be judged."""
        return [place for place in range(self.before + 1, self.after) if place not in self.skipped]

    @property
    def steps_left(self) -> int:
        """Judgements that it takes where each can be given."""
        return math.ceil(math.log2(len(self.open) + 1))

    @property
    def next(self) -> int | None:
        """The place to judge next; None where the answer is as narrow as it can be.

        The middle halves the window. Next to a place that could not be judged it is likely that another cannot, since
        what breaks an import stays broken for some commits: there, the gain counts half.
        """
        skipped = {place for place in self.skipped if self.before < place < self.after}

        def expected(place: int) -> float:
            gain = min(place - self.before, self.after - place)
            return gain / 2 if {place - 1, place + 1} & skipped else gain

        return max(self.open, key=expected, default=None)

    def narrowed(self, place: int, changed: bool | None) -> "Window":
        """The window after the judgement at `place`; None says that there was none."""
        if changed is None:
            return self._replace(skipped=self.skipped | {place})
        return self._replace(after=place) if changed else self._replace(before=place)
