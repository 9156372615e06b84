"""The scenarios that mutants are put to: drawn as Hypothesis draws them for a check, and swept."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Literal, NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from harness.campaign.run import ATTENTION_GROUPS
from harness.checks.check import Check
from harness.checks.gate import SUPPORTED, UNSUPPORTED
from harness.scenario import GateScenario, MetadataScenario, Scenario, SessionScenario
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
    for device in (*SUPPORTED, *UNSUPPORTED):
        yield Scene("guard", GateScenario(device))
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


#: Two that share a prefix, one that comes later and one that is long: they queue, grow, and leave at different turns.
VISITS = (
    Visit(140, 20, text=0, own=8),
    Visit(140, 12, text=0, own=8, arrives=2),
    Visit(7, 9, text=1, arrives=3),
    Visit(300, 16, text=2, arrives=5),
)


def played(capabilities: Collection[str]) -> Iterator[Scene]:
    """Sessions of DFlash: eager and in graphs, and with a window over the draft's cache."""
    if "DFLASH" not in capabilities:
        return
    window = (("page_size", 16), ("speculative_draft_window_size", 48))
    for session in (
        SessionScenario("DFLASH", VISITS, "eager"),
        SessionScenario("DFLASH", VISITS, "graph"),
        SessionScenario("DFLASH", VISITS, "eager", options=window),
    ):
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
