"""What a session's forwards and answers must be, in plain integers: docs/contract.md as code."""

from collections.abc import Sequence
from pathlib import Path

from harness.models.prompts import prompt
from harness.models.store import folder
from harness.reference.transformer import Greedy, greedy
from harness.scenario.convention import CONVENTION, DFLASH_FAMILY
from harness.scenario.observation import Forward
from harness.scenario.session import SessionScenario, context_length

Lengths = tuple[int, ...]


def kv_lengths(forward: Forward, step: int) -> Lengths:
    """What attention must be told, from the lengths on the device; `step` counts the steps of a draft decode."""
    if forward.mode in ("target_verify", "draft_block"):
        return tuple(length + forward.block for length in forward.device)
    if forward.mode == "draft_decode":
        return tuple(length + step + 1 for length in forward.device)
    return forward.device  # which has the new tokens already


def published(scenario: SessionScenario, forward: Forward) -> Lengths:
    """What the host tensor must hold, by the convention of the algorithm."""
    family = scenario.algorithm in DFLASH_FAMILY
    rule = CONVENTION.get((family, forward.mode))
    block = rule is not None and rule.host == "block" and rule.device == "nothing"
    return tuple(length + (forward.block if block else 0) for length in forward.device)


def increments(forwards: Sequence[Forward], visit: int) -> list[list[int]]:
    """By how much each verify of `visit` moved its committed prefix on, for every stretch between two extends.

    The last verify of a stretch is left out: no later forward says how it went.
    """
    stretches: list[list[int]] = []
    before: int | None = None
    for forward in forwards:
        if forward.draft or visit not in forward.visits:
            continue
        length = forward.device[forward.visits.index(visit)]
        if forward.mode != "target_verify":
            before = None
            continue
        if before is None:
            stretches.append([])
        else:
            stretches[-1].append(length - before)
        before = length
    return stretches


def answer(scenario: SessionScenario, visit: int) -> Greedy:
    """What the target generates for a visit, by itself and one token after the other."""
    asked = scenario.visits[visit]
    return greedy(target(scenario), tuple(prompt(asked, visit)), asked.new_tokens)


def answer_length(scenario: SessionScenario, visit: int) -> int:
    """How many tokens a visit gets: sglang keeps two positions of the context free (0.5.15 to 0.5.23)."""
    asked = scenario.visits[visit]
    return min(asked.new_tokens, context_length(scenario) - 2 - asked.length)


def tokens_of_extends(scenario: SessionScenario, forwards: Sequence[Forward], visit: int) -> int:
    """How many tokens of a visit came from no verify: one of each extend that reaches the end of what it has.

    In a mixed batch, requests that are being decoded ride in an extend.
    """
    own = [forward for forward in forwards if not forward.draft and visit in forward.visits]
    lengths = [forward.device[forward.visits.index(visit)] for forward in own if forward.mode in ("extend", "mixed")]
    return sum(length >= scenario.visits[visit].length for length in lengths)


def target(scenario: SessionScenario) -> Path:
    """The folder of the target model."""
    return folder(scenario.target) / "target"
