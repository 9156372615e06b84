"""What a known finding means for users: read from `judgements.json`, one entry per cause."""

from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

Kind = Literal["fault", "opt-in", "latent", "harmless", "unjudged"]

#: From what hurts most to what hurts nobody; an unjudged finding is taken seriously.
ORDER: tuple[Kind, ...] = ("fault", "unjudged", "opt-in", "latent", "harmless")
#: What users meet by default, or may meet for all that anybody knows.
GRAVE = ORDER[:2]


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One cause: the fingerprints it shows as, what it is, why, and the public reports of it.

    `fault`: users meet it by default. `opt-in`: with an option that is off by default. `latent`: no caller does what
    it takes today. `harmless`: nothing reads the value. `fingerprints` are shell patterns; the first entry that
    matches counts.
    """

    kind: Kind
    fingerprints: tuple[str, ...]
    why: str
    reports: tuple[str, ...] = ()


UNJUDGED = Judgement("unjudged", (), "nobody has judged this finding yet: see docs/findings.md")


@cache
def judgements() -> tuple[Judgement, ...]:
    """All entries of the data file."""
    data = files("harness.report").joinpath("judgements.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Judgement, ...])


def judge(fingerprint: str) -> Judgement:
    """The judgement of the first entry that matches `fingerprint`."""
    for judgement in judgements():
        if any(fnmatchcase(fingerprint, pattern) for pattern in judgement.fingerprints):
            return judgement
    return UNJUDGED
