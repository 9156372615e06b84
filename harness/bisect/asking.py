"""Asking revisions about cases: what was decided before is recalled, and one subject answers for all of them."""

from collections.abc import Callable, Sequence

from harness.bisect.decision import Decision, Subject, decide_all, rates_at
from harness.bisect.notebook import Notebook
from harness.bisect.revisions import Revision
from harness.bisect.sequential import Rates, rates
from harness.errors import NothingToTest
from harness.scenario.case import Case
from harness.subject.source import resolve


class Asking:
    """The cases of a bisection, with a notebook for each; `tell` gets a line for each new decision.

    Without a `rate` it is measured at the bad end how often a finding shows there.
    """

    def __init__(
        self,
        cases: Sequence[Case],
        notebooks: Sequence[Notebook],
        rate: float | None,
        subject: Subject,
        tell: Callable[[str], None],
    ) -> None:
        self.cases = cases
        self.notebooks = notebooks
        self.subject = subject
        self.tell = tell
        self.rates: list[Rates] | None = None if rate is None else [rates(rate)] * len(cases)

    def measure(self, bad_end: Revision) -> None:
        """Find out how often each finding shows at the bad end, unless the user has said so."""
        if self.rates is None:
            measured = self._decide(bad_end, [None] * len(self.cases))
            self.rates = [rates_at(decision) for decision in measured]

    def judge(self, place: int, revision: Revision) -> Decision:
        """What is decided of the case at `place`; the other cases are decided with it, while the subject is there."""
        assert self.rates is not None, "the bad end was not measured"
        return self._decide(revision, self.rates)[place]

    def _decide(self, revision: Revision, between: Sequence[Rates | None]) -> list[Decision]:
        try:
            source = resolve(revision.spec, self.tell)
        except NothingToTest as error:
            return [Decision("unknown", 0, 0, reason=str(error))] * len(self.cases)
        known = {
            place: notebook.recall(source, measured=between[place] is None)
            for place, notebook in enumerate(self.notebooks)
        }
        left = [place for place, decision in known.items() if decision is None]
        if left:
            decided = decide_all(source, [(self.cases[place], between[place]) for place in left], self.subject)
            for place, decision in zip(left, decided, strict=True):
                self.notebooks[place].note(source, decision, measured=between[place] is None)
                known[place] = decision
                self.tell(f"  {revision}: {decision.answer}. {decision.message or decision.reason or decision.values}")
        return [decision for decision in known.values() if decision is not None]
