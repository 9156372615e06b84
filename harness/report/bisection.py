"""The answer of a bisection: text for a terminal, JSON, and Markdown to paste into an issue."""

import shlex
from collections.abc import Sequence

import msgspec
from rich.console import Console

from harness.bisect.answer import Answer
from harness.bisect.bisection import Change
from harness.bisect.decision import Decision
from harness.bisect.revisions import Revision
from harness.bisect.sequential import ERROR
from harness.bisect.transitions import compare
from harness.report.document import SCHEMA, AnswerDocument, BisectionDocument
from harness.report.judgement import judge

#: Hunks that are shown; all of them are in the JSON.
MOST_HUNKS = 3


def show_answer(console: Console, answer: Answer) -> None:
    """What changed where, the evidence at both ends, the likely hunk, and the commands that show it again."""
    console.print()
    for line in lines(answer):
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def lines(answer: Answer) -> list[str]:
    """The answer in words."""
    kind = judge(answer.case.fingerprint).kind
    told = [f"{kind.upper()} {wanted(answer)}", *(f"  {line}" for line in _facts(answer))]
    for number, hunk in enumerate(answer.hunks[:MOST_HUNKS]):
        told.append(f"  {'likely hunk' if number == 0 else 'or'}: {hunk.function} in {hunk.file}:{hunk.start}")
        told += [f"    {line}" for line in hunk.lines]
    if answer.hunks:
        told.append(f"  ({answer.changed} functions that the scenario runs through have changed)")
    return [*told, *(f"  {line}" for line in replays(answer))]


def wanted(answer: Answer) -> str:
    """What was searched for."""
    return answer.case.fingerprint or f"any finding of {answer.case.check}"


def _facts(answer: Answer) -> list[str]:
    change = answer.change
    facts = [f"{sought(answer)}: {first(change)}"]
    if change.after.link:
        facts.append(f"  {change.after.link}")
    if answer.release is not None:
        facts.append(f"releases: {compare(answer.release.before.name, answer.release.after.name)}")
    facts += [
        f"{decision.answer}: {revision.name}: {evidence(decision)}"
        for revision, decision in ((change.before, change.at_before), (change.after, change.at_after))
    ]
    facts += [f"beside it, not counted: {other}" for other in others(change)]
    return [*facts, certainty(answer)]


def sought(answer: Answer) -> str:
    """What the revision that was found is the first one of."""
    return "first right" if answer.fixed else "first wrong"


def first(change: Change) -> str:
    """The revision that has the change, or all that may have it."""
    if not change.skipped:
        return str(change.after)
    names = ", ".join(str(revision) for revision in change.skipped)
    return f"one of {names}, {change.after}; all but the last could not be judged"


def others(change: Change) -> list[str]:
    """What was found beside it on either side, and did not count."""
    return list(dict.fromkeys((*change.at_before.others, *change.at_after.others)))


def evidence(decision: Decision) -> str:
    """The actual and the expected value, and what the field held."""
    return "; ".join(part for part in (decision.message, decision.values) if part) or "the check passed"


def certainty(answer: Answer) -> str:
    """How sure the answer is."""
    if answer.rates.certain:
        end = answer.ends.older if answer.fixed else answer.ends.newer
        return f"{answer.judged} sglangs judged, one run each: at the bad end {end.shown} of {end.runs} runs showed it"
    good, bad = answer.rates.good, answer.rates.bad
    return (
        f"{answer.judged} sglangs judged by a sequential test: bad where at least {bad:.1%} of the runs show it, good "
        f"where at most {good:.1%} do; each is wrong at most {ERROR:.1%} of the times, the answer {answer.error:.1%}"
    )


def replays(answer: Answer) -> list[str]:
    """The commands that show both sides again, and the one for `git bisect run`."""
    change, path = answer.change, shlex.quote(answer.path)
    specs = " ".join(f"--sglang {shlex.quote(one.spec)}" for one in (change.before, change.after))
    return [f"replay: harness replay {path} {specs}", f"in a clone: git bisect run harness verdict {path} --sglang ."]


def document(answers: Sequence[Answer]) -> BisectionDocument:
    """The answers as a document; see docs/json.md."""
    return BisectionDocument(
        SCHEMA,
        tuple(
            AnswerDocument(
                **msgspec.structs.asdict(answer),
                fingerprint=answer.case.fingerprint,
                exact=not answer.change.skipped,
                judged=answer.judged,
                error=answer.error,
                replay=replays(answer)[0].removeprefix("replay: "),
            )
            for answer in answers
        ),
    )


def markdown(answers: Sequence[Answer]) -> str:
    """The answers as Markdown, one section each."""
    return "\n".join(_section(answer) for answer in answers)


def _section(answer: Answer) -> str:
    change = answer.change
    parts = [f"## `{wanted(answer)}`", ""]
    parts += [f"- {line.strip()}" for line in _facts(answer)]
    for hunk in answer.hunks[:1]:
        parts += ["", f"Likely hunk: `{hunk.function}` in `{hunk.file}`, line {hunk.start}", "", "```diff"]
        parts += [*hunk.lines, "```"]
    scenario = msgspec.json.format(msgspec.json.encode(answer.case), indent=2).decode()
    replay = replays(answer)[0].removeprefix("replay: ")
    parts += ["", f"To see {_named(change.before)} and {_named(change.after)} side by side:", "", "```", replay, "```"]
    parts += ["", "<details><summary>the case</summary>", "", "```json", scenario, "```", "", "</details>", ""]
    return "\n".join(parts)


def _named(revision: Revision) -> str:
    return f"`{revision.name}`"
