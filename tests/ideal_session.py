"""An ideal server: what is seen of a session in which everything is right, from the reference alone."""

from collections.abc import Sequence

from msgspec.structs import replace

from harness.reference.session import answer, answer_length, kv_lengths, published
from harness.scenario.observation import Answer, Forward, SessionSeen
from harness.scenario.session import SessionScenario

#: D of every algorithm that speculates.
BLOCK = 4
#: Steps of a draft decode that attend: all but the last.
STEPS = 2


class _Guest:
    """A visit that is being served: its committed prefix, and what its verifies gave."""

    def __init__(self, length: int) -> None:
        self.prefix = length
        self.made = 1
        self.accepted = [0] * BLOCK
        self.aborted = False


def session_seen(scenario: SessionScenario) -> SessionSeen:
    """The session from its first turn to its end. A visit is extended in the turn after it arrives.

    A turn in which somebody comes is an extend; any other is a step of all who are being served. A verify accepts as
    many tokens as the place and the number of the visit say.
    """
    guests: dict[int, _Guest] = {}
    forwards: list[Forward] = []
    turn = 0
    while turn <= max(visit.arrives for visit in scenario.visits) or _served(scenario, guests):
        turn += 1
        for number, visit in enumerate(scenario.visits):
            if number in _served(scenario, guests) and visit.aborted and visit.aborted < turn:
                guests[number].aborted = True
        coming = [number for number, visit in enumerate(scenario.visits) if visit.arrives == turn - 1]
        if coming:
            lengths = tuple(scenario.visits[number].length for number in coming)
            forwards.append(_seen(scenario, Forward(turn, False, "extend", tuple(coming), lengths, new_tokens=lengths)))
            guests |= {number: _Guest(length) for number, length in zip(coming, lengths, strict=True)}
        elif batch := _served(scenario, guests):
            forwards += _step(scenario, turn, batch, [guests[number].prefix for number in batch])
            for number in batch:
                _advance(scenario, number, guests[number])
    answers = tuple(_answer(scenario, number, guests[number]) for number in range(len(scenario.visits)))
    return SessionSeen(turn, tuple(forwards), answers)


def _served(scenario: SessionScenario, guests: dict[int, _Guest]) -> list[int]:
    """Who has come, and wants more tokens."""
    return [
        number for number, guest in guests.items() if not guest.aborted and guest.made < answer_length(scenario, number)
    ]


def _step(scenario: SessionScenario, turn: int, batch: Sequence[int], prefixes: Sequence[int]) -> list[Forward]:
    """The forwards of one turn: a decode, or a draft and its verify."""
    visits, before = tuple(batch), tuple(prefixes)
    if scenario.algorithm == "NONE":
        after = tuple(prefix + 1 for prefix in before)
        return [_seen(scenario, Forward(turn, False, "decode", visits, after))]
    verify = _seen(scenario, Forward(turn, False, "target_verify", visits, before, block=BLOCK))
    if scenario.algorithm == "DFLASH":
        return [_seen(scenario, Forward(turn, True, "draft_block", visits, before, block=BLOCK)), verify]
    decode = Forward(turn, True, "draft_decode", visits, before, before, block=BLOCK)
    reads = tuple(kv_lengths(decode, step) for step in range(STEPS))
    captured = scenario.executor == "graph"
    drafts = [replace(decode, reads=reads)] if captured else [replace(decode, reads=(read,)) for read in reads]
    block = tuple(prefix + BLOCK for prefix in before)
    return [*drafts, verify, _seen(scenario, Forward(turn, True, "draft_extend", visits, block, block=BLOCK))]


def _seen(scenario: SessionScenario, forward: Forward) -> Forward:
    """`forward` with the host lengths and the KV lengths that are right."""
    return replace(forward, host=published(scenario, forward), reads=(kv_lengths(forward, 0),))


def _advance(scenario: SessionScenario, number: int, guest: _Guest) -> None:
    accepted = 0 if scenario.algorithm == "NONE" else (guest.prefix + number) % BLOCK
    guest.accepted[accepted] += 1
    guest.prefix += accepted + 1
    guest.made += accepted + 1


def _answer(scenario: SessionScenario, number: int, guest: _Guest) -> Answer:
    wanted = answer_length(scenario, number)
    tokens = answer(scenario, number).tokens[: min(guest.made, wanted)]
    speculates = scenario.algorithm != "NONE"
    return Answer(
        tokens,
        "FINISH_ABORT" if guest.aborted else "FINISH_LENGTH",
        sum(guest.accepted) if speculates else 0,
        tuple(guest.accepted) if speculates else (),
        max(0, guest.made - wanted),
    )
