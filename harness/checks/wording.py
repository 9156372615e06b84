"""How a finding reads: the value that is wrong, the one that would be right, and the scenario in brackets."""

from msgspec.structs import replace

from harness.checks.finding import Finding
from harness.scenario import MetadataScenario, SessionScenario
from harness.scenario.convention import FAMILY
from harness.scenario.metadata import Attention

#: What each relation of a wrong length to the right one means for a user.
OVER = "attention reads KV slots that nobody has written for this request: acceptance falls, error 507015 can follow"
UNDER = "attention does not see tokens that it must see: outputs are wrong"

#: Modes in which ASCEND_USE_FIA and sinks select the operators; `forward_mtp` does not (0.5.15 to 0.5.23).
SELECTING = ("extend", "decode", "draft_decode")


def relation(actual: int, expected: int, scenario: MetadataScenario) -> str:
    """Name the difference of two unequal lengths by what it is made of, so that one fault has one fingerprint."""
    difference = actual - expected
    if scenario.mode in ("target_verify", "draft_block") and abs(difference) == scenario.draft_tokens:
        return "block-added-again" if difference > 0 else "block-missing"
    return "too-long" if difference > 0 else "too-short"


def where(scenario: MetadataScenario, round_index: int, row: int | None = None) -> str:
    """The scenario in brackets: executor, prefix and the geometry; the round where there are several."""
    batch = scenario.rounds[round_index]
    parts: list[str] = [scenario.executor, scenario.algorithm, scenario.mode]
    if scenario.target != "mha":
        parts.append(operators(scenario.target, scenario.attention) if scenario.attention else scenario.target)
    if row is not None and row < len(batch):
        parts.append(f"prefix={batch[row].prefix}")
        if batch[row].host_lag:
            parts.append(f"host_lag={batch[row].host_lag}")
    parts.append(f"block={scenario.draft_tokens}")
    if scenario.mode == "draft_decode":
        parts.append(f"step={scenario.step}")
    if scenario.window:
        parts.append(f"window={scenario.window}")
    parts.append(f"page={scenario.pool.page_size}")
    if scenario.host_view != "published":
        parts.append(f"host={scenario.host_view}")
    if len(scenario.rounds) > 1:
        parts.append(f"round={round_index}")
    return ", ".join(parts)


def operators(target: str, attention: Attention) -> str:
    """Which operators attention runs over: its kind, whether ASCEND_USE_FIA is on, whether there are sinks, and NZ."""
    chosen = {"fia": attention.fia, "sinks": attention.sinks, "nz": attention.nz}
    return "-".join([target, *(name for name, on in chosen.items() if on)])


def finding(
    check: str, field: str, relation_name: str, scenario: MetadataScenario, message: str, meaning: str
) -> Finding:
    """Build a finding; its fingerprint holds no number, so that every scenario of one fault has the same.

    Algorithms whose workers and backend code are the same share a fingerprint (EAGLE and its relatives). Batches
    without exact host lengths have fingerprints of their own, since it takes an option to meet them. So have attention
    kinds beside MHA where attention runs, by the operators that they select and the layout of their caches; a forward
    of several draft tokens has but one path, but for the sinks of a replay: models with and without them have another
    name for the lengths. Hybrid linear attention always has its own: a wrapper stands between runner and backend there.
    """
    family = FAMILY.get(scenario.algorithm, scenario.algorithm)
    parts = [check, field, family, scenario.executor, scenario.mode, relation_name]
    if scenario.host_view != "published":
        parts.append(f"{scenario.host_view}-host")
    if scenario.attention is not None and scenario.target != "mha":
        parts.append(operators(scenario.target, _selecting(scenario, scenario.attention)))
    elif scenario.target == "gdn":
        parts.append(scenario.target)
    fingerprint = ":".join(parts)
    return Finding(check, fingerprint, scenario.algorithm, scenario.executor, scenario.mode, message, meaning, scenario)


def _selecting(scenario: MetadataScenario, attention: Attention) -> Attention:
    """What of `attention` decides the path of the scenario."""
    if scenario.mode in SELECTING:
        return attention
    return replace(attention, fia=False, sinks=attention.sinks and scenario.executor == "graph")


def session_where(scenario: SessionScenario, visit: int | None = None) -> str:
    """The session in brackets: its server, and the request that is meant."""
    parts: list[str] = [scenario.executor, scenario.draft or scenario.algorithm, scenario.target]
    if scenario.subject != "worker":
        parts.append(scenario.subject)
    if scenario.gate_lifted:
        parts.append("device gate lifted")
    if scenario.streams != "ordered":
        parts.append(f"{scenario.streams} streams")
    parts += [f"{name}={value}" for name, value in (*scenario.options, *scenario.environment)]
    if visit is not None:
        asked = scenario.visits[visit]
        parts.append(f"prompt={asked.length}")
    parts.append("1 request" if len(scenario.visits) == 1 else f"{len(scenario.visits)} requests")
    return ", ".join(parts)


#: Options under which a worker publishes, or a backend reads, in another way: their usual values, and their marks in a
#: fingerprint.
_MARKS: dict[str, tuple[object, str]] = {
    "SGLANG_NPU_ATTN_BACKEND_NEEDS_CPU_SEQ_LENS": ("1", "absent-host"),
    "speculative_draft_window_size": (None, "draft-window"),
    "enable_mixed_chunk": (False, "mixed"),
    "disable_hybrid_swa_memory": (False, "full-pool"),
}


def session_finding(
    check: str,
    field: str,
    relation_name: str,
    scenario: SessionScenario,
    words: str,
    meaning: str,
    visit: int | None = None,
    place: str = "",
) -> Finding:
    """Build a finding of a session: what is wrong in `words`, and in brackets the `place` and the session.

    Of the options its fingerprint has those that change how the worker publishes.
    """
    message = f"{words} [{', '.join(filter(None, (place, session_where(scenario, visit))))}]"
    family = FAMILY.get(scenario.algorithm, scenario.algorithm)
    parts = [check, field, family, scenario.executor, "session", relation_name]
    if scenario.target != "mha":
        parts.append(scenario.target)
    settings = dict((*scenario.options, *scenario.environment))
    parts += [mark for name, (value, mark) in _MARKS.items() if settings.get(name, value) != value]
    if scenario.gate_lifted:
        parts.append("gate-lifted")
    if scenario.streams != "ordered":
        parts.append(f"{scenario.streams}-streams")
    return Finding(check, ":".join(parts), scenario.algorithm, scenario.executor, "session", message, meaning, scenario)
