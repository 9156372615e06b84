"""Acceptance in a terminal: a run, and two runs side by side."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.parity.acceptance_comparison import Comparison, Rung, Side
from harness.parity.acceptance_counts import of_replies
from harness.parity.acceptance_run import Header, Run
from harness.parity.acceptance_verdict import Verdict

LENGTH = "Lengths are tokens of a verify, bonus included: a ratio of sums, and in brackets the mean per request."


def show_accept_run(console: Console, run: Run) -> None:
    """What a run has, in two lines, and why it ended where it is not whole."""
    verified = [number for number, reply in run.replies.items() if reply.verifies]
    say(console, f"{run.path}: {_system(run.header)}")
    length = "no verifies"
    if verified:
        accepted = of_replies(run.replies, verified, run.header.setting.draft_tokens)
        length = f"{accepted.length:.3f} ({accepted.per_request:.3f}) over {accepted.verifies.sum()} verifies"
    count = run.header.setting.count
    scored = len(run.own) + len(run.base)
    say(console, f"{len(run.replies)} of {count} prompts, {length}, {len(run.steps)} replayed steps, {scored} scored.")
    if len(run.replies) < count and run.ended:
        say(console, f"It ended: {run.ended[-1]}")
    say(console, LENGTH)


def show_comparison(console: Console, found: Comparison) -> None:
    """The ladder, rung by rung, the acceptance by position, and the verdict with its reason."""
    setting = found.reference.setting
    say(console, f"reference: {_system(found.reference)}")
    say(console, f"candidate: {_system(found.candidate)}")
    say(
        console,
        f"{setting.count} prompts, {setting.concurrency} at once, {setting.new_tokens} tokens, {setting.algorithm} of "
        f"{setting.draft_tokens}, thinking {'on' if setting.thinking else 'off'}",
    )
    _show_exactness(console, found)
    if found.rungs:
        columns = (
            "rung",
            "prompts",
            "reference",
            "candidate",
            "difference" if found.look else "difference, 90 %",
            "margin",
            "p same",
            "p less",
            "p curve",
        )
        table = Table(*columns, "verdict")
        for rung in found.rungs:
            table.add_row(*_rung(rung))
        console.print(table)
        say(console, LENGTH)
        _show_positions(console, found.rungs[0])
    for rung in found.rungs:
        if rung.verdict is Verdict.INCONCLUSIVE:
            say(console, f"{rung.design}: {_what_decides(rung)}")
    if found.look == 1 and found.verdict is Verdict.INCONCLUSIVE:
        count = setting.count
        say(
            console,
            f"The second look is due: record both with --skip {count} --count {count}, and compare again with "
            "--two-looks --more REF CAND.",
        )
    for why in found.left_out:
        say(console, f"not compared, {why}")
    console.print(f"verdict: {coloured(found.verdict)}")
    if found.verdict is Verdict.IMPROVED:
        say(
            console,
            "More than the reference is as suspicious as less: find out what changed before it is the reference.",
        )


def say(console: Console, words: str) -> None:
    """A line as it is."""
    console.print(escape(words), highlight=False, soft_wrap=True)


def _system(header: Header) -> str:
    system = header.system
    mode = "graphs" if system.graphs else "eager"
    return (
        f"{system.where}, release {system.release}, {system.device} {system.dtype}, TP {system.tensor_parallel}, "
        f"{mode}, {header.date}"
    )


def _show_exactness(console: Console, found: Comparison) -> None:
    exact = found.exactness
    bound = f"{exact.bound.value:.3g} nats ({exact.bound.source})" if exact.bound else "not measured: give --aa"
    say(
        console,
        f"exact: {exact.compared} tokens compared, {exact.wrong} wrong, {exact.near_ties} near-ties, "
        f"{exact.unjudged} not judged; near-tie below {bound}",
    )
    for one in exact.told:
        say(console, f"  {one}")


def _rung(rung: Rung) -> tuple[str, ...]:
    found = rung.difference
    ends = f"{found.estimate:+.2%} ({found.interval.low:+.2%} to {found.interval.high:+.2%})"
    ps = (f"{p:.2g}" for p in (rung.equivalence_p, rung.drop_p, rung.curve_p))
    sides = (f"{side.length:.3f} ({side.per_request:.3f})" for side in (rung.reference, rung.candidate))
    return (rung.design, str(rung.prompts), *sides, ends, f"{rung.margin:.1%}", *ps, coloured(rung.verdict))


def _show_positions(console: Console, rung: Rung) -> None:
    table = Table(f"accepted where reached, {rung.design}", *map(str, range(1, len(rung.reference.positions) + 1)))
    for name, side in (("reference", rung.reference), ("candidate", rung.candidate)):
        table.add_row(name, *_hazards(side))
    table.add_row("p of a change", *(f"{one.p:.2g}" if one.p is not None else "" for one in rung.shifts))
    if rung.design == "replay":
        table.add_row("lost, won", *(f"{one.lost}, {one.won}" for one in rung.shifts))
    console.print(table)


def _hazards(side: Side) -> list[str]:
    return ["" if position.hazard is None else f"{position.hazard:.3f}" for position in side.positions]


def _what_decides(rung: Rung) -> str:
    compared = f"{rung.prompts} were compared, {rung.planned} are planned for"
    if rung.decide is not None:
        return f"{rung.decide} such prompts would decide, if the difference is what it looks like ({compared})."
    if rung.decide_if_same is not None:
        return f"{rung.decide_if_same} such prompts would decide, if nothing has changed ({compared})."
    return f"no number of such prompts would decide: they differ too much from one another ({compared})."


def coloured(verdict: Verdict) -> str:
    """The verdict as markup."""
    colour = {Verdict.EQUIVALENT: "green", Verdict.INCONCLUSIVE: "yellow"}.get(verdict, "bold red")
    return f"[{colour}]{verdict.value}[/]"
