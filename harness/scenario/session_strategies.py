"""Strategies for sessions: a state machine of requests that come, share prefixes, are aborted and end."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

from hypothesis import strategies as st

from harness.scenario.axes import AXES, EXCLUDED, session_axes
from harness.scenario.covering import Row, Value, covering
from harness.scenario.metadata import Algorithm, Executor
from harness.scenario.session import CONTEXT_LENGTH, DraftModel, SessionScenario, SessionTarget, Streams, Subject, Visit

#: Algorithms with a draft for every target (and NONE, which needs none), that an NPU may start.
ALGORITHMS: tuple[Algorithm, ...] = ("DFLASH", "DSPARK", "EAGLE", "NONE")
#: Draft models beside those that every algorithm has; they are run with the trained target alone.
OTHER_DRAFTS: tuple[tuple[Algorithm, DraftModel], ...] = (("DFLASH", "DFLASH2"),)
#: The target whose drafts are often right, which sessions run most.
TRAINED: SessionTarget = "mha"
#: Of the server, where no option says otherwise.
PAGE_SIZE = 128
MOST_VISITS = 5
#: Prompts are no longer than the texts that the models were trained on.
LONGEST_PROMPT = 380
MOST_TOKENS = 24
TEXTS = 4
#: What servers of the engine subject vary. Other options are the workers' own, and cheaper to vary there.
ENGINE_AXES = ("disable_overlap_schedule", "disable_radix_cache", "chunked_prefill_size")


class Server(NamedTuple):
    """What sessions are drawn for: algorithm, executor, target, one row of the covering, who answers, and the draft."""

    algorithm: Algorithm
    executor: Executor
    target: SessionTarget
    row: tuple[tuple[str, Value], ...]
    subject: Subject = "worker"
    draft: DraftModel = ""

    def __str__(self) -> str:
        varied = [f"{name}={value}" for name, value in self.row]
        kind = "session" if self.subject == "worker" else f"session {self.subject}"
        return " ".join([kind, self.draft or self.algorithm, self.executor, self.target, *varied])

    @property
    def options(self) -> tuple[tuple[str, int | float | str | bool], ...]:
        """Server options that the row varies."""
        return tuple((name, value) for name, value in self.row if value is not None and _kind(name) == "option")

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Environment switches that the row varies."""
        return tuple((name, str(value)) for name, value in self.row if _kind(name) == "environment")

    @property
    def page_size(self) -> int:
        """Slots per page."""
        return int(dict(self.options).get("page_size", PAGE_SIZE))

    @property
    def longest_prompt(self) -> int:
        """Tokens of the longest prompt that is drawn; a few can follow it."""
        return min(int(dict(self.options).get("context_length", CONTEXT_LENGTH)) - 8, LONGEST_PROMPT)

    def session(self, visits: Sequence[Visit], streams: Streams = "ordered") -> SessionScenario:
        """The session of these visits."""
        return SessionScenario(
            self.algorithm,
            tuple(visits),
            self.executor,
            self.target,
            self.subject,
            self.options,
            self.environment,
            self.draft,
            streams,
        )


def _kind(name: str) -> str:
    return next(axis.kind for axis in AXES if axis.name == name)


def servers(algorithms: Collection[str], known: Collection[str], rows: int) -> Iterator[Server]:
    """The servers that sessions run on: at most `rows` for each algorithm and executor.

    One fewer for random targets, and for drafts beside the one that an algorithm has. `algorithms` and `known` are the
    capabilities, and the names of options and switches, that the sglang has. The first row has every axis at its first
    value; a row names what differs from it.
    """
    for target in get_args(SessionTarget):
        for algorithm, draft in _drafts(target):
            if not {algorithm, draft} <= {*algorithms, "NONE", ""}:
                continue
            axes = session_axes(algorithm, target, known)
            most = rows if target == TRAINED and not draft else rows - 1
            for executor in get_args(Executor):
                for row in covering(axes, EXCLUDED)[:most]:
                    yield Server(algorithm, executor, target, _varied(row, axes), draft=draft)


def _drafts(target: SessionTarget) -> Iterator[tuple[Algorithm, DraftModel]]:
    yield from ((algorithm, "") for algorithm in ALGORITHMS)
    if target == TRAINED:
        yield from OTHER_DRAFTS


def engines(algorithms: Collection[str], known: Collection[str], rows: int) -> Iterator[Server]:
    """The servers of the engine subject, at most `rows` for each executor: with DFLASH, where the sglang has it."""
    if "DFLASH" not in algorithms:
        return
    axes = {name: values for name, values in session_axes("DFLASH", TRAINED, known).items() if name in ENGINE_AXES}
    for executor in get_args(Executor):
        for row in covering(axes, EXCLUDED)[:rows]:
            yield Server("DFLASH", executor, TRAINED, _varied(row, axes), "engine")


def _varied(row: Row, axes: Mapping[str, Sequence[Value]]) -> tuple[tuple[str, Value], ...]:
    return tuple((name, value) for name, value in row.items() if value != axes[name][0])


@st.composite
def sessions(draw: st.DrawFn, server: Server) -> SessionScenario:
    """Sessions on `server`: at every turn nothing happens, or a request comes, or one that has come is aborted.

    Lengths lie around the ends of pages and of the context; half of the prompts share their beginning with another one.
    Some requests are sampled, and some sessions of workers have late streams.
    """
    visits: list[Visit] = []
    turn = 0
    for _ in range(draw(st.integers(1, MOST_VISITS), label="visits")):
        turn += draw(st.integers(0, 6), label="turns")
        length = draw(prompt_lengths(server, [visit.length for visit in visits]))
        aborted = draw(st.sampled_from((0, 0, 0, turn + 1, turn + 3)), label="aborted")
        visits.append(
            Visit(
                length=length,
                new_tokens=draw(st.integers(1, MOST_TOKENS), label="new tokens"),
                text=draw(st.integers(0, TEXTS - 1), label="text"),
                own=draw(st.integers(0, min(length, server.page_size + 1)), label="own"),
                arrives=turn,
                aborted=aborted,
                temperature=draw(st.sampled_from((0, 0, 0, 80)), label="temperature"),
            )
        )
    may_be_late = ("ordered", "ordered", "ordered", "late") if server.subject == "worker" else ("ordered",)
    return server.session(visits, draw(st.sampled_from(may_be_late), label="streams"))


def prompt_lengths(server: Server, others: Sequence[int]) -> st.SearchStrategy[int]:
    """Prompt lengths: short ones, those around the ends of pages, those of other prompts, and the longest."""
    page, longest = server.page_size, server.longest_prompt
    edges = [end + near for end in range(page, longest + 1, page) for near in (-8, -1, 0, 1)]
    special = [length for length in (*edges, *others, longest) if 1 <= length <= longest]
    return st.one_of(st.integers(1, 12), st.sampled_from(special), st.integers(1, longest))
