"""The search itself: both ends are verified, then the window between them is halved until one revision is left."""

from collections.abc import Callable, Sequence

import msgspec

from harness.bisect.decision import Decision
from harness.bisect.revisions import Revision
from harness.bisect.window import Window
from harness.errors import CannotJudge, UsageError

#: Decides one revision; what was decided before comes from the notebook.
Judge = Callable[[Revision], Decision]
#: Told the window before each step.
Watch = Callable[[Sequence[Revision], Window], None]


class Change(msgspec.Struct, frozen=True):
    """The neighbours between which the answer changes, oldest first, and what was decided of both.

    `skipped` lie between them and could not be judged, so that the change is in any of these or in `after`.
    `judged` counts the decisions that the search took, those of the ends not counted.
    """

    before: Revision
    after: Revision
    at_before: Decision
    at_after: Decision
    skipped: tuple[Revision, ...] = ()
    judged: int = 0


class Ends(msgspec.Struct, frozen=True):
    """What was decided of the older and of the newer end."""

    older: Decision
    newer: Decision


def verify_ends(older: Revision, newer: Revision, judge: Judge, fixed: bool) -> Ends:
    """Decide both ends, and refuse to search where they are not as the user says.

    Raises UsageError where the ends are alike or the wrong way round, and CannotJudge where one cannot be judged.
    """
    ends = Ends(judge(older), judge(newer))
    for revision, decision in ((older, ends.older), (newer, ends.newer)):
        if decision.answer == "unknown":
            raise CannotJudge(f"{revision.name} cannot be judged, and an end has to be: {decision.reason.rstrip('.')}.")
    answers = (ends.older.answer, ends.newer.answer)
    if answers == ("good", "good"):
        raise UsageError(f"the finding shows neither in {older.name} nor in {newer.name}: there is nothing to search.")
    if answers == ("bad", "bad"):
        raise UsageError(f"the finding shows in {older.name} and in {newer.name}: name an end without it.")
    if fixed and answers == ("good", "bad"):
        raise UsageError(
            f"{older.name} is right and {newer.name} is wrong, so that it was broken between them and not fixed: leave "
            "out --fixed, to find what broke it."
        )
    if not fixed and answers == ("bad", "good"):
        raise UsageError(
            f"the ends are the wrong way round: {older.name} is wrong and {newer.name} is right, so that it was fixed "
            f"between them; `harness bisect --fixed --good {newer.spec} --bad {older.spec}` finds what fixed it."
        )
    return ends


def search(line: Sequence[Revision], ends: Ends, judge: Judge, watch: Watch) -> Change:
    """Where the answer changes along `line`, oldest first, whose `ends` are known to differ."""
    decisions = {0: ends.older, len(line) - 1: ends.newer}
    window = Window(0, len(line) - 1)
    while (place := window.next) is not None:
        watch(line, window)
        decisions[place] = decision = judge(line[place])
        changed = None if decision.answer == "unknown" else decision.answer == ends.newer.answer
        window = window.narrowed(place, changed)
    return Change(
        line[window.before],
        line[window.after],
        decisions[window.before],
        decisions[window.after],
        tuple(line[place] for place in range(window.before + 1, window.after)),
        len(decisions) - 2,
    )
