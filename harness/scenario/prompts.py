"""The prompts of sessions: bytes of text that the trained pair has not learned."""

from functools import cache
from itertools import chain, islice
from pathlib import Path

import msgspec

import harness
from harness.scenario.session import Visit

#: Beside the package in a clone.
FILE = Path(harness.__file__).parent.parent / "fixtures" / "tiny_pair" / "prompts.json"
#: Letters, as the last tokens of a prompt that no other prompt has; there are more than visits of a session.
_OWN = 97


@cache
def texts() -> tuple[tuple[int, ...], ...]:
    """The texts, the longest first, each a tuple of bytes."""
    prompts = msgspec.json.decode(FILE.read_bytes(), type=tuple[tuple[int, ...], ...])
    return tuple(sorted(prompts, key=len, reverse=True))


def prompt(visit: Visit, number: int) -> list[int]:
    """The tokens of the visit with this number: its text, and where that ends the next ones."""
    known = texts()
    first = visit.text % len(known)
    text = chain.from_iterable((*known[first:], *known[:first]))
    shared = list(islice(text, visit.length - min(visit.own, visit.length)))
    return shared + [_OWN + (number + place) % 26 for place in range(visit.length - len(shared))]
