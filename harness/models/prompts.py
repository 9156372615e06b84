"""The prompts of sessions: bytes of text that the trained pair has not learned."""

from functools import cache
from itertools import chain, islice

import msgspec

from harness.models.store import TRAINED
from harness.scenario.session import Visit

#: Letters, as the last tokens of a prompt that no other prompt has; there are more than visits of a session.
_OWN = 97


@cache
def texts() -> tuple[tuple[int, ...], ...]:
    """The texts, the longest first, each a tuple of bytes."""
    data = (TRAINED / "prompts.json").read_bytes()
    return tuple(sorted(msgspec.json.decode(data, type=tuple[tuple[int, ...], ...]), key=len, reverse=True))


def prompt(visit: Visit, number: int) -> list[int]:
    """The tokens of the visit with this number: those given, or its text, and where that ends the next ones."""
    if visit.given:
        return list(visit.given)
    known = texts()
    first = visit.text % len(known)
    text = chain.from_iterable((*known[first:], *known[:first]))
    shared = list(islice(text, visit.length - min(visit.own, visit.length)))
    return shared + [_OWN + (number + place) % 26 for place in range(visit.length - len(shared))]
