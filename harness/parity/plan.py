"""Which scenarios are recorded and compared: drawn from each code path where attention runs, the same every time."""

from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, given, seed, settings

from harness.errors import UsageError
from harness.reference.metadata import query_tokens
from harness.scenario import MetadataScenario
from harness.scenario.attention import attention_scenarios
from harness.scenario.content import output_size
from harness.scenario.metadata import Target
from harness.scenario.strategies import Cell, cells
from harness.scenario.validity import MAX_REQUESTS
from harness.subject.cuda.prepare import INTERPRETED
from harness.subject.frames import SubjectInfo

#: Scenarios of each profile.
COUNTS = {"dev": 40, "pr": 200, "nightly": 2000}
#: Values of all outputs of a scenario, at most: 2 000 scenarios of a nightly recording are to stay below 50 MB.
MOST_VALUES = 1 << 13
#: The largest graph that is drawn where kernels are interpreted, which takes time for every padded row.
LARGEST_INTERPRETED = 8
#: The attention kinds that each kind of subject runs.
TARGETS: dict[str, tuple[Target, ...]] = {
    "ascend": ("mha", "mla", "swa"),
    "triton": ("mha", "swa"),
    "fa3": ("mha", "swa"),
    "flashinfer": ("mha",),
}


def planned(
    subjects: Sequence[SubjectInfo], count: int, run_seed: int, only: Sequence[str] = ()
) -> tuple[MetadataScenario, ...]:
    """`count` scenarios, as many of one code path as of any other, one path after the other; none is there twice.

    They are such that all of `subjects` can run them.

    Each of `only` is words of a code path (`DFLASH target_verify`, `swa graph`): those that have all words of any of
    them are drawn from. Raises UsageError where there is none.
    """
    known = _cells(subjects)
    paths = [cell for cell in known if not only or any(_has(cell, words.split()) for words in only)]
    if not paths:
        named = sorted({word for cell in known for word in str(cell).split()})
        raise UsageError(f"no code path has {' or '.join(map(repr, only))}: the words are {', '.join(named)}.")
    largest = LARGEST_INTERPRETED if any(info.device == INTERPRETED for info in subjects) else MAX_REQUESTS
    share, rest = divmod(count, len(paths))
    drawn = (_drawn(cell, share + (number < rest), run_seed, largest) for number, cell in enumerate(paths))
    return tuple(scenario for of_path in drawn for scenario in of_path)


def _cells(subjects: Sequence[SubjectInfo]) -> list[Cell]:
    """The code paths that all of `subjects` have."""
    capabilities = set.intersection(*(set(info.capabilities) for info in subjects))
    return [cell for cell in cells(capabilities) if all(cell.target in TARGETS[info.kind] for info in subjects)]


def _has(cell: Cell, words: Sequence[str]) -> bool:
    return set(words) <= set(str(cell).split())


def _drawn(cell: Cell, count: int, run_seed: int, largest: int) -> list[MetadataScenario]:
    """`count` different scenarios of `cell`, graphs up to `largest`; more are drawn, since Hypothesis repeats itself.

    The last ones are kept: it begins with the simplest.
    """
    found: dict[MetadataScenario, None] = {}

    @seed(run_seed)
    @settings(
        max_examples=10 * count,
        database=None,
        deadline=None,
        derandomize=False,  # or the profile that is loaded would have a word in what is drawn
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(attention_scenarios(cell))
    def collect(scenario: MetadataScenario) -> None:
        if max(scenario.buckets, default=0) <= largest and _values(scenario) <= MOST_VALUES:
            found[scenario] = None

    if count:
        collect()
    return list(found)[-count:] if count else []


def _values(scenario: MetadataScenario) -> int:
    """How many numbers all outputs of `scenario` have."""
    attention = scenario.attention
    if attention is None:
        return 0
    layers = 2 if scenario.target == "swa" else 1
    rows = sum(query_tokens(scenario, request) for batch in scenario.rounds for request in batch)
    return rows * layers * attention.query_heads * output_size(scenario)
