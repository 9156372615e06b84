"""How much is tried: the three profiles of the command line and of pytest."""

from typing import NamedTuple

from harness.errors import UsageError


class Profile(NamedTuple):
    """`examples` are drawn per cell, and `runs` where attention runs, which takes ten times as long.

    Of sessions, `sessions` are drawn per server; `servers` are started for each algorithm and executor, and `engines`
    for each executor.
    The sweep covers `sweep_blocks` draft tokens, and batches of two if `sweep_pairs`.
    A derandomized profile draws the same scenarios every time, whatever the seed.
    """

    name: str
    examples: int
    runs: int
    sessions: int
    servers: int
    sweep_blocks: range
    sweep_pairs: bool
    derandomize: bool
    engines: int = 0


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("dev", 8, 3, 3, 1, range(1, 17, 5), False, False),
        Profile("pr", 20, 20, 6, 3, range(1, 17, 5), True, True, engines=1),
        Profile("nightly", 600, 600, 40, 99, range(1, 17), True, False, engines=99),
    )
}


def profile_named(name: str) -> Profile:
    """The profile called `name`; raises UsageError for any other name."""
    if name not in PROFILES:
        raise UsageError(f"there is no profile {name!r}: the profiles are {', '.join(PROFILES)}.")
    return PROFILES[name]
