"""Leaving out of a session's server what its finding does not need: every try is a server started anew."""

from collections.abc import Iterator

from msgspec.structs import replace

from harness.campaign.trial import Trial
from harness.checks.finding import Finding
from harness.scenario import SessionScenario

Setting = tuple[str, object]


def simplified(trial: Trial, finding: Finding) -> Finding:
    """The finding with as few server options and switches as still show it; of other scenarios, the finding itself.

    What an engine has shown is tried with its workers alone, and what late streams have shown in order. Of the
    settings, halves are tried first, then single ones, until none can be left out.
    """
    scenario = finding.scenario
    if not isinstance(scenario, SessionScenario):
        return finding
    smallest = finding
    for field, plain in (("subject", "worker"), ("streams", "ordered")):
        simpler = replace(scenario, **{field: plain})
        if simpler != scenario and (same := _again(trial, simpler, finding)) is not None:
            smallest, scenario = same, simpler
    settings: list[Setting] = [*scenario.options, *scenario.environment]
    size = len(settings)
    while size:
        for left in list(_without(settings, size)):
            if (same := _again(trial, _with(scenario, left), finding)) is not None:
                smallest, settings = same, left
                break
        else:
            size //= 2
        size = min(size, len(settings))
    return smallest


def _again(trial: Trial, scenario: SessionScenario, finding: Finding) -> Finding | None:
    """The finding as `scenario` shows it, if it does."""
    shown = trial.judge(scenario, finding.check)
    return next((one for one in shown if one.fingerprint == finding.fingerprint), None)


def _without(settings: list[Setting], size: int) -> Iterator[list[Setting]]:
    """`settings` without `size` that stand together, one place after the other."""
    for start in range(0, len(settings), size):
        yield settings[:start] + settings[start + size :]


def _with(scenario: SessionScenario, settings: list[Setting]) -> SessionScenario:
    """The scenario with those of its settings that are among `settings`."""
    return replace(
        scenario,
        options=tuple(setting for setting in scenario.options if setting in settings),
        environment=tuple(setting for setting in scenario.environment if setting in settings),
    )
