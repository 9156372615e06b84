"""Putting the sweep to a subject in bulk frames, checking one frame while the subject works on the next."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

from harness.campaign.tally import Tally
from harness.campaign.trial import Observe
from harness.checks.check import Check, no_variants
from harness.scenario import Scenario
from harness.scenario.observation import Observation

FRAME = 250


def frames(scenarios: Iterable[Scenario], size: int = FRAME) -> Iterator[list[Scenario]]:
    """Cut `scenarios` into lists of `size`."""
    iterator = iter(scenarios)
    while frame := list(islice(iterator, size)):
        yield frame


def run_sweep(
    observe: Observe,
    checks: Sequence[Check],
    tally: Tally,
    scenarios: Iterable[Scenario],
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Judge every scenario with the checks that need no variants; `advance` gets the size of each finished frame.

    Of each fingerprint the smallest scenario is kept: the sweep visits them all, so there is nothing to shrink.
    """
    single = [check for check in checks if check.variants is no_variants]

    def finish(frame: list[Scenario], answer: Future[list[Observation]]) -> None:
        _judge(single, tally, frame, answer.result())
        advance(len(frame))

    with ThreadPoolExecutor(1) as subject:
        previous: tuple[list[Scenario], Future[list[Observation]]] | None = None
        for frame in frames(scenarios):
            answer = subject.submit(observe, frame)
            if previous is not None:
                finish(*previous)
            previous = (frame, answer)
        if previous is not None:
            finish(*previous)


def _judge(
    checks: Sequence[Check], tally: Tally, frame: Sequence[Scenario], observations: Sequence[Observation]
) -> None:
    for scenario, observation in zip(frame, observations, strict=True):
        for check in checks:
            if check.applies(scenario):
                outcome = check.outcome(scenario, [observation])
                tally.count(check.id, outcome)
                for finding in outcome.findings:
                    tally.keep(finding)
