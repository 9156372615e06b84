"""All checks, by id and by group."""

from collections.abc import Sequence

from harness.checks import (
    accept,
    attention,
    draws,
    gate,
    inputs,
    lengths,
    prefix,
    relations,
    session_answers,
    session_lengths,
    session_server,
    states,
    tables,
    window,
)
from harness.checks.check import Check
from harness.errors import UsageError

_MODULES = (
    lengths,
    tables,
    inputs,
    relations,
    window,
    states,
    prefix,
    gate,
    attention,
    accept,
    draws,
    session_server,
    session_lengths,
    session_answers,
)
CHECKS: dict[str, Check] = {check.id: check for module in _MODULES for check in module.CHECKS}
GROUPS: tuple[str, ...] = tuple(dict.fromkeys(check.group for check in CHECKS.values()))


def checks_of(groups: Sequence[str]) -> list[Check]:
    """The checks of `groups`, all of them where none is named; raises UsageError for an unknown group."""
    for group in groups:
        if group not in GROUPS:
            raise UsageError(f"there is no check group {group!r}: the groups are {', '.join(GROUPS)}.")
    return [check for check in CHECKS.values() if not groups or check.group in groups]


def checks_without(names: Sequence[str]) -> list[Check]:
    """All checks but `names`; raises UsageError for one that there is not."""
    if unknown := set(names) - CHECKS.keys():
        raise UsageError(f"there is no check {min(unknown)!r}: the checks are {', '.join(CHECKS)}.")
    return [check for check in CHECKS.values() if check.id not in names]
