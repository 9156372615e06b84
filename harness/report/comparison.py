"""One scenario on several sglangs, side by side."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.checks.accept import chosen
from harness.checks.check import Check
from harness.checks.finding import Outcome, Verdict
from harness.scenario import GateScenario, Scenario, SessionScenario, VerifyRequest, VerifyScenario
from harness.scenario.observation import Emitted, Observation, SessionSeen
from harness.subject.frames import SubjectInfo

COLOURS = {Verdict.PASS: "green", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "yellow", Verdict.NOT_RUN: "dim"}


#: Different emissions of one request that are shown.
MOST_WAYS = 6


class Replayed(NamedTuple):
    """What one sglang showed: who it was, its observation of the scenario, and the outcome of each check."""

    info: SubjectInfo
    observation: Observation
    outcomes: dict[Check, Outcome]


def show_replay(console: Console, scenario: Scenario, replays: Sequence[Replayed]) -> None:
    """The scenario, what each sglang made of it, the verdict of every check, and the findings in words."""
    for line in describe(scenario):
        console.print(escape(line), highlight=False, soft_wrap=True)
    columns = [escape(f"{replay.info.release} ({replay.info.spec})") for replay in replays]
    seen = Table("seen", *columns)
    rows = [_seen(replay.observation) for replay in replays]
    for name in dict.fromkeys(name for row in rows for name in row):
        seen.add_row(escape(name), *(escape(row.get(name, "")) for row in rows))
    console.print(seen)
    verdicts = Table("check", *columns)
    for check in dict.fromkeys(check for replay in replays for check in replay.outcomes):
        cells = [replay.outcomes[check].verdict if check in replay.outcomes else None for replay in replays]
        verdicts.add_row(check.id, *(f"[{COLOURS[cell]}]{cell.value}[/]" if cell else "" for cell in cells))
    console.print(verdicts)
    for replay in replays:
        for outcome in replay.outcomes.values():
            for finding in outcome.findings:
                line = f"{replay.info.release}: {finding.message}: {finding.meaning} [{finding.fingerprint}]"
                console.print(escape(line), highlight=False, soft_wrap=True)
            if outcome.reason:
                console.print(escape(f"{replay.info.release}: {outcome.reason}"), highlight=False, soft_wrap=True)


def describe(scenario: Scenario) -> list[str]:
    """The scenario in a few lines."""
    if isinstance(scenario, SessionScenario):
        return _describe_session(scenario)
    if isinstance(scenario, GateScenario):
        draft = () if scenario.draft is None else (("the draft model's block_size", scenario.draft),)
        given = [f"{name}={value}" for name, value in (*draft, *scenario.options)]
        return [", ".join([f"start {scenario.algorithm} with device={scenario.device!r}", *given])]
    if isinstance(scenario, VerifyScenario):
        return _describe_verify(scenario)
    pool = scenario.pool
    lines = [
        f"{scenario.algorithm} {scenario.mode}, {scenario.executor}, attention {scenario.target}, "
        f"{scenario.draft_tokens} draft tokens, page size {pool.page_size}, context {pool.context_length}, "
        f"host lengths {scenario.host_view} as {scenario.host_dtype}"
    ]
    if scenario.attention is not None:
        heads = f"{scenario.attention.query_heads} query heads on {scenario.attention.kv_heads} KV heads"
        lines.append(f"attention runs: {heads}, ASCEND_USE_FIA={int(scenario.attention.fia)}")
    if scenario.buckets:
        lines.append(f"captured batch sizes: {', '.join(map(str, scenario.buckets))}")
    for number, batch in enumerate(scenario.rounds):
        prefixes = [request.prefix for request in batch]
        lags = f", host ahead by {[request.host_lag for request in batch]}" if scenario.lagging else ""
        lines.append(f"round {number}: prefixes {prefixes}{lags}")
    return lines


def _describe_session(scenario: SessionScenario) -> list[str]:
    server = f"{scenario.algorithm}, {scenario.executor}, target {scenario.target}, by the {scenario.subject}"
    lifted = ", device gate lifted" if scenario.gate_lifted else ""
    lines = [f"session: {server}{lifted}; never-written KV slots hold {scenario.fill}"]
    settings = [f"{name}={value}" for name, value in (*scenario.options, *scenario.environment)]
    if settings:
        lines.append(f"with {', '.join(settings)}")
    for number, visit in enumerate(scenario.visits):
        aborted = f", aborted at turn {visit.aborted}" if visit.aborted else ""
        heat = f", temperature {visit.temperature / 100}" if visit.temperature else ""
        shared = f"text {visit.text}, the last {min(visit.own, visit.length)} its own"
        asked = f"{visit.length} tokens ({shared}), asks for {visit.new_tokens}{heat}{aborted}"
        lines.append(f"visit {number} at turn {visit.arrives}: {asked}")
    return lines


def _seen_session(seen: SessionSeen) -> dict[str, str]:
    rows = {"turns": str(seen.turns), "forwards": str(len(seen.forwards))}
    if seen.error:
        rows["error"] = seen.error
    for number, answer in enumerate(seen.answers):
        accepted = f", {len(answer.tokens) / answer.verifies:.2f} tokens a verify" if answer.verifies else ""
        text = f"{list(answer.tokens)}"
        rows[f"answer {number}"] = f"{text if len(text) <= 60 else f'{text[:60]}…'} {answer.finished}{accepted}"
    for number, access in enumerate(seen.accesses[:3]):
        rows[f"bad access {number}"] = access.sentence
    for number, problem in enumerate(seen.accounts[:3]):
        rows[f"books {number}"] = problem
    for changed in seen.rewritten[:3]:
        rows[f"{changed.name} written"] = f"{list(changed.before)} → {list(changed.after)}"
    return rows


def _describe_verify(scenario: VerifyScenario) -> list[str]:
    often = f", {scenario.draws} draws with seed {scenario.seed}" if scenario.draws > 1 else ""
    lines = [f"{scenario.algorithm} verify on the {scenario.path} path, {scenario.block} tokens a request{often}"]
    for number, request in enumerate(scenario.requests):
        tree = f" after nodes {list(request.parents)}" if request.parents else ""
        line = f"request {number}: token {request.tokens[0]}, then drafted {list(request.tokens[1:])}{tree}"
        lines.append(f"{line}; {_chosen(request)}")
        for node, logits in enumerate(request.logits):
            grammar = f", allowed {list(request.allowed[node])}" if request.allowed else ""
            lines.append(f"  logits after node {node}: {list(logits)}{grammar}")
        for node, logits in enumerate(request.draft_logits):
            lines.append(f"  the draft's logits after node {node}: {list(logits)}")
    return lines


def _emitted(seen: Sequence[Emitted]) -> str:
    """Everything that a request emitted, the most frequent first; of many, the first ones."""
    ways = [f"{list(one.tokens)}" + (f" × {one.count}" if one.count > 1 else "") for one in seen[:MOST_WAYS]]
    return "; ".join(ways) + ("; …" if len(seen) > MOST_WAYS else "")


def _chosen(request: VerifyRequest) -> str:
    """How the tokens of a request are chosen."""
    return ", ".join(chosen(request)) if request.sampled else "greedy"


def _seen(observation: Observation) -> dict[str, str]:
    if observation.session is not None:
        return _seen_session(observation.session)
    if observation.fault is not None:
        rows = {"fault": f"{observation.fault.cause}: {observation.fault.reason}"}
        if observation.fault.last_words:
            rows["its last words"] = observation.fault.last_words
        return rows
    if observation.verdict:
        return {"answer": observation.verdict} | {name: str(value) for name, value in observation.settled}
    rows = {f"request {number} emits": _emitted(seen) for number, seen in enumerate(observation.accepted)}
    several = len(observation.seen) > 1
    for number, seen in enumerate(observation.seen):
        prefix = f"round {number} " if several else ""
        if seen.error:
            rows[f"{prefix}error"] = seen.error
        for name, array in seen.fields.items():
            text = str(array.values.tolist())
            rows[prefix + name] = text if len(text) <= 60 else f"{text[:60]}… {list(array.shape)}"
        if seen.output is not None:
            rows[f"{prefix}output"] = f"float32 of shape {list(seen.output.shape)}"
        for wait in seen.waits:
            rows[f"{prefix}host waits at {wait.site}"] = f"{wait.reason}, {wait.count} times"
        for number_of_access, access in enumerate(seen.accesses):
            rows[f"{prefix}bad access {number_of_access}"] = access.sentence
        for changed in seen.changed:
            rows[f"{prefix}{changed.name} written"] = f"{list(changed.before)} → {list(changed.after)}"
    return rows
