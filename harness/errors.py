"""What can go wrong outside the code under test, and the exit status each gets."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit status of every `harness` command; documented in docs/cli.md."""

    PASSED = 0
    FINDINGS = 1
    USAGE = 2
    UNKNOWN = 3


class BisectExit(IntEnum):
    """Exit status of `harness verdict`: what `git bisect run` understands.

    git takes every other status from 1 to 127 for bad, so whatever is no answer at all has to be `STOP`.
    """

    GOOD = 0
    BAD = 1
    SKIP = 125
    STOP = 128


class ReaderGone(Exception):
    """Nobody reads the output any more: the command ends without a word."""


class HarnessError(Exception):
    """A failure that is told to the user in one sentence, without a traceback."""

    exit_status = Exit.UNKNOWN


class UsageError(HarnessError):
    """Wrong use or bad input: an unknown release, a broken case file, a directory that is no sglang."""

    exit_status = Exit.USAGE


class NothingToTest(UsageError):
    """What is named is no sglang, or one without the Ascend backend: of a revision that is no wrong use, but a skip."""


class CannotJudge(HarnessError):
    """Nothing was wrong with the request, but no verdict can be given: no network, no subject, no disk."""

    exit_status = Exit.UNKNOWN


class NoSubject(CannotJudge):
    """An sglang that cannot be started or kept: of a revision a skip, where no network and no disk are none."""
