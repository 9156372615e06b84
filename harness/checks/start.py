"""What `_handle_dflash` must make of its options: refuse what cannot work, and settle the rest."""

import re

from harness.scenario import GateScenario
from harness.scenario.observation import Observation

BLOCK, TOKENS, WINDOW = (
    "speculative_dflash_block_size",
    "speculative_num_draft_tokens",
    "speculative_draft_window_size",
)
STEPS, TOPK, RUNNING = "speculative_num_steps", "speculative_eagle_topk", "max_running_requests"
BACKEND, DRAFT_BACKEND = "attention_backend", "speculative_draft_attention_backend"
#: Attention in parallel over data, as a server of two ranks has it; the gate itself needs neither rank.
DP, DP_HEAD, CP = "enable_dp_attention", "enable_dp_lm_head", "attn_cp_size"
TWO_RANKS = {DP: 1, "dp_size": 2, "tp_size": 2, "attn_dp_size": 2}
#: A release that has none of it on this device says so (all devices up to 0.5.19, CUDA up to 0.5.22): data, no finding.
NO_DP = re.compile(r"\bnot support\w* dp attention", re.IGNORECASE)
#: What the start takes where nobody says anything, and tells the user in the log (0.5.15 to 0.5.23).
DEFAULT_BLOCK, DEFAULT_RUNNING = 16, 48


def start(draft: int = 8, **options: int | str) -> GateScenario:
    """With a draft model of block `draft` and options, on a device that all releases accept."""
    return GateScenario("cuda", draft=draft, options=tuple(options.items()))


#: Options as users give them.
STARTS = (
    start(),
    start(0),
    start(**{STEPS: 1, TOPK: 1, RUNNING: 7}),
    start(**{STEPS: 2, TOPK: 2}),
    start(**{TOKENS: 4}),
    start(**{BLOCK: 1}),
    start(**{BLOCK: 0}),
    start(**{BLOCK: 4, TOKENS: 4}),
    start(**{BLOCK: 4, TOKENS: 8}),
    start(**{WINDOW: 7}),
    start(**{WINDOW: 8}),
    start(**{BLOCK: 4, WINDOW: 64}),
    start(attention_backend="ascend"),
    start(pp_size=2),
    start(**TWO_RANKS),
    start(**TWO_RANKS, **{DP_HEAD: 1}),
    start(**TWO_RANKS, **{DP_HEAD: 1, CP: 2}),
    GateScenario("npu", draft=8, options=tuple(TWO_RANKS.items())),
)


def _number(scenario: GateScenario, name: str) -> int | None:
    value = dict(scenario.options).get(name)
    return None if value is None else int(value)


def wrong(scenario: GateScenario) -> str:
    """The option that the start must refuse, or an empty string."""
    block, tokens, window = (_number(scenario, name) for name in (BLOCK, TOKENS, WINDOW))
    if _number(scenario, "pp_size") not in (None, 1):
        return "pp_size"
    if _number(scenario, DP) and scenario.device != "npu" and (not _number(scenario, DP_HEAD) or _number(scenario, CP)):
        return "dp_attention"
    if block is not None and (block <= 0 or tokens not in (None, block)):
        return BLOCK
    return WINDOW if window is not None and window < block_of(scenario) else ""


def block_of(scenario: GateScenario) -> int:
    """The block of the server: the one that is asked for, else the draft model's, else the default."""
    asked = (_number(scenario, BLOCK), _number(scenario, TOKENS), scenario.draft)
    return next((block for block in asked if block), DEFAULT_BLOCK)


def differences(scenario: GateScenario, observed: Observation) -> list[tuple[str, str]]:
    """How the start differs from what it must be: a word for what is wrong, and a sentence."""
    accepted, option = observed.verdict == "accepted", wrong(scenario)
    if option and accepted:
        return [("no-refusal", f"_handle_dflash accepts {_words(scenario)}, and should refuse {option}")]
    if option:
        named = option in re.sub("[- ]", "_", observed.verdict)
        return [] if named else [("unhelpful", f"the refusal does not name {option}: {observed.verdict!r}")]
    if not accepted and _number(scenario, DP) and NO_DP.search(observed.verdict):
        return []
    if not accepted:
        return [("refused", f"_handle_dflash refuses {_words(scenario)}, which it should accept: {observed.verdict!r}")]
    options, settled = dict(scenario.options), dict(observed.settled)
    expected = {STEPS: 1, TOPK: 1, TOKENS: block_of(scenario), RUNNING: options.get(RUNNING, DEFAULT_RUNNING)}
    if BACKEND in options:  # a draft attends as its target does, where it can
        expected[DRAFT_BACKEND] = options[BACKEND]
    return [
        (name, f"{name}={settled.get(name)}, but should be {value} of {_words(scenario)}")
        for name, value in expected.items()
        if settled.get(name) != value
    ]


def _words(scenario: GateScenario) -> str:
    given = [f"{name}={value}" for name, value in scenario.options]
    return ", ".join([f"a draft model of block {scenario.draft}" if scenario.draft else "a draft model", *given])
