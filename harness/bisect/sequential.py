"""A sequential test for a finding that shows in some runs only (Wald 1945, Annals of Mathematical Statistics 16).

A run shows the finding or not. On a bad sglang it shows in a share of the runs of at least `Rates.bad`, on a good one
in at most `Rates.good`. Runs are made until one of the two is so much likelier that the other is taken in error at most
`ERROR` times: a few runs where the answer is clear, more where it is not.
"""

import math

import msgspec
import scipy  # which loads its parts as they are used: `stats` takes a second

#: How often one sglang is judged wrongly at most, in either direction.
ERROR = 0.005
#: Runs after which a share lies too near to both rates to be told.
MOST_RUNS = 1000
#: A good sglang shows the finding in less than this part of the share of a bad one.
NOISE = 0.1


class Rates(msgspec.Struct, frozen=True):
    """Shares of the runs that show the finding: at most `good` on a good sglang, at least `bad` on a bad one."""

    good: float
    bad: float

    @property
    def certain(self) -> bool:
        """Whether each run shows it on a bad sglang and none on a good one, so that one run decides."""
        return self.bad == 1.0 and self.good == 0.0


CERTAIN = Rates(0.0, 1.0)


def rates(bad: float) -> Rates:
    """The rates of a finding that shows in a share of `bad` of the runs on a bad sglang, 1 if in all of them."""
    return CERTAIN if bad >= 1.0 else Rates(bad * NOISE, bad)


def lower_bound(shown: int, runs: int, error: float = ERROR) -> float:
    """The share that `shown` of `runs` stands for at least, but for `error` of the times (Clopper and Pearson)."""
    interval = scipy.stats.binomtest(shown, runs, alternative="greater").proportion_ci(1 - error, method="exact")
    return float(interval.low)


class SequentialTest:
    """Wald's test between the two `rates`: feed it runs until `decided` is no longer None."""

    def __init__(self, rates: Rates) -> None:
        self.rates = rates
        self.runs = 0
        self.shown = 0
        self.evidence = 0.0

    def add(self, shown: bool) -> None:
        """One more run, which showed the finding or not."""
        self.runs += 1
        self.shown += shown
        if not self.rates.certain:
            good, bad = self.rates.good, self.rates.bad
            self.evidence += math.log(bad / good) if shown else math.log((1 - bad) / (1 - good))

    @property
    def decided(self) -> bool | None:
        """Whether the sglang is bad; None as long as neither answer is certain enough."""
        if self.rates.certain:
            return bool(self.shown) if self.runs else None
        border = math.log((1 - ERROR) / ERROR)
        if abs(self.evidence) < border:
            return None
        return self.evidence > 0
