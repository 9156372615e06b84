"""A session built step by step: a Hypothesis state machine whose rules are what visitors of a server do.

A scenario is data, so the machine runs nothing: at its end, the session that came of the steps is handed over to be
played and judged, turn by turn.
"""

from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace

from harness.scenario.session import SessionScenario, Visit
from harness.scenario.session_strategies import MOST_TOKENS, TEXTS, Server, prompt_lengths

#: Beyond the largest batch that is captured: it grows past that, and shrinks below.
MOST_VISITS = 6

_NEW_TOKENS = st.integers(1, MOST_TOKENS)


def _has_room(machine: "SessionMachine") -> bool:
    return len(machine.made) < MOST_VISITS


class SessionMachine(RuleBasedStateMachine):
    """Visits of `server`, turn by turn; `judge` gets the session that they make, unless nobody came."""

    visits = Bundle("visits")

    def __init__(self, server: Server, judge: Callable[[SessionScenario], None]) -> None:
        super().__init__()
        self.server = server
        self.judge = judge
        self.turn = 0
        self.made: list[Visit] = []

    @precondition(_has_room)
    @rule(target=visits, data=st.data(), text=st.integers(0, TEXTS - 1), new_tokens=_NEW_TOKENS)
    def comes(self, data: st.DataObject, text: int, new_tokens: int) -> int:
        """A request comes, with all but one token of a text."""
        length = data.draw(prompt_lengths(self.server, [visit.length for visit in self.made]), label="length")
        return self._add(Visit(length, new_tokens, text, arrives=self.turn))

    @precondition(_has_room)
    @rule(target=visits, data=st.data(), earlier=visits, new_tokens=_NEW_TOKENS)
    def goes_on_from(self, data: st.DataObject, earlier: int, new_tokens: int) -> int:
        """A request comes whose prompt begins as that of an earlier one, and goes on by tokens of its own."""
        before = self.made[earlier]
        most = min(self.server.page_size, self.server.longest_prompt - before.length)
        own = data.draw(st.integers(0, most), label="own")
        return self._add(Visit(before.length + own, new_tokens, before.text, own, self.turn))

    @rule(turns=st.integers(1, 6))
    def turns_pass(self, turns: int) -> None:
        """Nothing happens for so many turns of the server."""
        self.turn += turns

    @rule(visit=visits)
    def is_aborted(self, visit: int) -> None:
        """A request is aborted, at the turn after it came at the earliest; once is enough."""
        asked = self.made[visit]
        if not asked.aborted:
            self.made[visit] = replace(asked, aborted=max(self.turn, asked.arrives + 1))

    def _add(self, visit: Visit) -> int:
        self.made.append(visit)
        return len(self.made) - 1

    def teardown(self) -> None:
        """Hand over what came of it."""
        if self.made:
            self.judge(self.server.session(self.made))
