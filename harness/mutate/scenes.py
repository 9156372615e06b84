"""The scenarios that mutants are put to: drawn as Hypothesis draws them for a check, and swept."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from harness.campaign.run import ATTENTION_GROUPS
from harness.checks.check import Check
from harness.checks.gate import GATES
from harness.scenario import MetadataScenario, Scenario, SessionScenario
from harness.scenario.attention import attends, attention_scenarios
from harness.scenario.capability import missing
from harness.scenario.session import Visit
from harness.scenario.strategies import cells, scenarios
from harness.scenario.sweep import sweep

Layer = Literal["guard", "metadata", "attention", "accept", "sessions", "sweep"]
#: From the cheapest to the dearest.
LAYERS: tuple[Layer, ...] = ("guard", "metadata", "attention", "accept", "sessions")
#: The groups whose checks a run asks about a scenario of the layer.
GROUPS: dict[Layer, tuple[str, ...]] = {
    "guard": ("guard",),
    "metadata": ("metadata",),
    "attention": ATTENTION_GROUPS,
    "accept": ("accept",),
    "sessions": ("sessions",),
    "sweep": ("metadata",),
}


def asked(layer: Layer, checks: Iterable[Check]) -> list[Check]:
    """Those of `checks` that a run asks about a scenario of `layer`."""
    return [check for check in checks if check.group in GROUPS[layer]]


class Scene(NamedTuple):
    """One scenario, and the layer that it belongs to."""

    layer: Layer
    scenario: Scenario


class Draw(NamedTuple):
    """How many scenarios are drawn for each cell, for metadata and where attention runs, and by which seed."""

    metadata: int = 10
    attention: int = 12
    seed: int = 0


def drawn(capabilities: Collection[str], draw: Draw) -> Iterator[Scene]:
    """The gate, then metadata, then attention: one scenario of each cell, then the next one of each."""
    for start in GATES:
        yield Scene("guard", start)
    every = cells(capabilities)
    strategies = [scenarios(cell, capabilities) for cell in every]
    for one in _in_turns(_each_by_its_seed(strategies, draw.metadata, draw.seed)):
        yield Scene("metadata", one)
    strategies = [attention_scenarios(cell, capabilities) for cell in every if attends(cell)]
    for one in _in_turns(_each_apart(strategies, draw.attention, draw.seed)):
        yield Scene("attention", one)


def _each_by_its_seed(
    strategies: Sequence[SearchStrategy[MetadataScenario]], count: int, of: int
) -> Iterator[list[Scenario]]:
    """Examples of each strategy, by seeds of their own: by the same one, cells that are much alike draw the same."""
    for number, strategy in enumerate(strategies):
        yield examples(strategy, count, of * len(strategies) + number)


def _each_apart(
    strategies: Sequence[SearchStrategy[MetadataScenario]], count: int, of: int
) -> Iterator[list[Scenario]]:
    """Examples of each strategy, each by a seed of its own: one after the other are much alike, and begin simply.

    What selects the operators is drawn from a few values, of which no combination may be missed.
    """
    for number, strategy in enumerate(strategies, start=of * len(strategies)):
        yield [examples(strategy, 2, number * count + turn)[-1] for turn in range(count)]


def swept(capabilities: Collection[str]) -> Iterator[Scene]:
    """The sweep of a `dev` run, without its pairs."""
    for scenario in sweep(range(1, 17, 5), pairs=False):
        if not missing(scenario, capabilities):
            yield Scene("sweep", scenario)


_DRAFT_WINDOW = "speculative_draft_window_size"
#: Two that share a prefix, one that comes later and one that is long: they queue, grow, and leave at different turns.
VISITS = (
    Visit(140, 20, text=0, own=8),
    Visit(140, 12, text=0, own=8, arrives=2),
    Visit(7, 9, text=1, arrives=3),
    Visit(300, 16, text=2, arrives=5),
)

#: Two of one length, that take their pages in the same steps, and one that takes its own in others.
TWINS = (
    Visit(140, 20, text=0, own=140),
    Visit(140, 20, text=1, own=140),
    Visit(133, 20, text=2, own=133),
)


def played(capabilities: Collection[str]) -> Iterator[Scene]:
    """Sessions for what is run by nothing else: the allocator, the worker of DFlash, and graphs that are loaded.

    Without speculation, where a decode takes its pages, with and without a tree that keeps them; of DFlash, eager, in
    graphs and with streams that are late, with windows over the draft's cache that end within a page and on one; of
    EAGLE, whose graph of a verify is loaded before it is replayed.
    """
    sessions = [
        SessionScenario("NONE", VISITS, "eager"),
        SessionScenario("NONE", TWINS, "eager", options=(("disable_radix_cache", True), ("page_size", 16))),
        SessionScenario("EAGLE", VISITS, "graph"),
    ]
    if "DFLASH" in capabilities:
        sessions += [
            SessionScenario("DFLASH", VISITS, "eager"),
            SessionScenario("DFLASH", VISITS, "graph"),
            *(
                SessionScenario("DFLASH", VISITS, "eager", options=(("page_size", page), (_DRAFT_WINDOW, 48)))
                for page in (16, 64)
            ),
            SessionScenario("DFLASH", VISITS, "graph", streams="late"),
        ]
    for session in sessions:
        yield Scene("sessions", session)


def examples(strategy: SearchStrategy[MetadataScenario], count: int, of: int) -> list[Scenario]:
    """The first `count` scenarios that Hypothesis draws with the seed `of`, failures or not."""
    found: list[Scenario] = []
    if not count:
        return found

    @seed(of)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(scenario: Scenario) -> None:
        found.append(scenario)

    run: Callable[[], None] = draw
    run()
    return found[:count]


def _in_turns(lists: Iterable[list[Scenario]]) -> Iterator[Scenario]:
    return (one for one in chain.from_iterable(zip_longest(*lists)) if one is not None)
