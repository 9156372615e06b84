"""docs/power.md: what the checks catch, from a mutation study."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from statistics import median

from harness.mutate.scenes import LAYERS
from harness.mutate.study import ARMS, Study, Verdict, score, typical
from harness.report.mutation import killers_of, percent, title

#: Survivors that a page lists of each target; all are in the JSON.
MOST_LISTED = 12

_MEANING = """\
A mutant is one function of sglang's own source with one place changed, in the memory of its subject. It is killed where
a check says of it what no check says of the release as it is. The score is of mutants that some scenario runs and that
are not argued to do the same (`harness/mutate/argued`). A *masked* mutant changes what is said, but under a
fingerprint that the release shows elsewhere; it counts as alive.
"""

_SHARE = """\
`subject`: the subject was lost or reported less than it should, which is UNKNOWN and never passes. Of a mutant, what is
counted is said of the first scenario that killed it; without the one check that saw it there, a later one may.
"""


def power_page(study: Study) -> str:
    """The page."""
    parts: Iterator[str] = _head(study)
    lines = [*parts, *(line for section in _SECTIONS for line in section(study))]
    return "\n".join(lines).rstrip("\n") + "\n"


def _head(study: Study) -> Iterator[str]:
    verdicts, drawn = study.verdicts, ", ".join(f"{count} {layer}" for layer, count in study.scenes.items())
    yield "# What the checks catch"
    yield ""
    yield f"Made by `harness mutate --sglang {study.release}{_options(study)} --markdown FILE`; do not edit, run it."
    yield ""
    yield _MEANING
    mutants = f"{len(verdicts)} mutants{_sample(study)}, {drawn} scenarios, seed {study.seed}"
    faults = f"{len(study.faults)} faults of the catalogue"
    yield f"sglang {study.release}, {', '.join([mutants] * bool(verdicts) + [faults] * bool(study.faults))}:"
    yield f"{study.seconds / 60:.0f} minutes with {study.subjects} subjects. Seconds depend on the machine and its"
    yield "load; counts do not."
    yield ""


def _options(study: Study) -> str:
    limit = f" --limit {study.limit}" if study.limit else ""
    verdicts = study.verdicts
    groups = dict.fromkeys(verdict.group for verdict in verdicts)
    sweep = " --sweep" if any("swept" in verdict.fates for verdict in verdicts) else ""
    faults = " --faults" if study.faults else ""
    minutes = "" if study.minutes is None else f" --minutes {study.minutes:g}"
    without = "".join(f" --without {check}" for check in study.without)
    return limit + "".join(f" --group {group}" for group in groups) + sweep + faults + without + minutes


def _sample(study: Study) -> str:
    limit = f" (a sample, at most {study.limit})" if study.limit else ""
    return limit + (f" of {len(study.verdicts) + study.untried} (in an order of chance)" if study.untried else "")


def _targets(study: Study) -> Iterator[str]:
    if not study.verdicts:
        return
    yield from _section("Score", ("target", "made", "killed", "equivalent", "not run", "score", "scenarios", "seconds"))
    for target, verdicts in _by(study.verdicts, lambda verdict: verdict.target):
        yield _line(f"`{target}`", *_numbers(verdicts))
    for group, verdicts in _by(study.verdicts, lambda verdict: verdict.group):
        yield _line(f"**{group}**", *_numbers(verdicts))
    yield ""
    yield "Scenarios and seconds until it was killed: medians, of scenarios that run the mutated line."
    yield ""


def _numbers(verdicts: Collection[Verdict]) -> list[str]:
    found, times = score(verdicts), typical(verdicts, "drawn")
    spent = (f"{times[0]:g}", f"{times[1]:.1f}") if times else ("", "")
    return [str(found.made), str(found.killed), str(found.equivalent), str(found.unreached), percent(found), *spent]


def _control(study: Study) -> Iterator[str]:
    if not study.scenes:
        return
    by = Counter(fingerprint.split(":")[0] for fingerprint in study.known)
    yield "## Without a mutant"
    yield ""
    yield f"Of sglang as it is, {len(by)} of {len(study.checks)} checks say something:"
    yield ", ".join(f"{check} {said}" for check, said in by.items()) + " (fingerprints)."
    yield f"{len(study.known) - len(study.new)} of {len(study.known)} are findings that `cases/regressions` pins."
    yield f"Scenarios that a check could not judge, and that no mutant is put to: {study.unjudged}."
    yield ""
    for fingerprint in study.new:
        yield f"* not pinned: `{fingerprint}`"
    yield ""


def _checks(study: Study) -> Iterator[str]:
    columns = ("check", "mutants", "that no other sees", "faults of the catalogue", "that no other sees")
    yield from _section("What each check sees", columns)
    killed = [killers_of(verdict) for verdict in study.verdicts if verdict.status == "killed"]
    needed: set[str] = set()
    names = sorted({name for killers in killed for name in killers} | {name for one in study.faults for name in one.by})
    for name in names:
        seen = [killers for killers in killed if name in killers]
        alone = sum(killers == [name] for killers in seen)
        faults = [fault.by for fault in study.faults if name in fault.by]
        yield _line(name, len(seen), alone, len(faults), sum(by == (name,) for by in faults))
        if alone or (name,) in faults:
            needed.add(name)
    yield ""
    yield _SHARE
    if not study.faults:
        return
    idle = [check for check in study.checks if check not in needed]
    yield f"Switched off, {len(study.checks) - len(idle)} of {len(study.checks)} checks would let one of these live."
    if idle:
        yield f"Nothing here needs {', '.join(f'`{check}`' for check in idle)}."
    yield ""


def _layers(study: Study) -> Iterator[str]:
    yield from _section(
        "What each layer adds", ("layer", "mutants that it killed and no cheaper one", "faults of the catalogue")
    )
    fates = [verdict.fates["drawn"] for verdict in study.verdicts if "drawn" in verdict.fates]
    for layer in LAYERS:
        killed = sum(fate.status == "killed" and fate.layer == layer for fate in fates)
        yield _line(layer, killed, sum(fault.layer == layer for fault in study.faults))
    yield ""


def _arms(study: Study) -> Iterator[str]:
    if not any(len(verdict.fates) == len(ARMS) for verdict in study.verdicts):
        return
    yield from _section("Drawn and swept", ("", "killed", "score", "median scenarios", "median seconds", "alone"))
    for arm in ARMS:
        other = [one for one in ARMS if one != arm]
        found, times = score(study.verdicts, arm), typical(study.verdicts, arm)
        alone = sum(_killed(verdict, [arm]) and not _killed(verdict, other) for verdict in study.verdicts)
        spent = (f"{times[0]:g}", f"{times[1]:.1f}") if times else ("", "")
        yield _line(arm, found.killed, percent(found), *spent, alone)
    both = score(study.verdicts)
    yield _line("both", both.killed, percent(both), "", "", "")
    yield ""


def _killed(verdict: Verdict, arms: Iterable[str]) -> bool:
    return any(fate.status == "killed" for arm, fate in verdict.fates.items() if arm in arms)


def _faults(study: Study) -> Iterator[str]:
    if not study.faults:
        return
    yield from _section("Faults of the catalogue", ("fault", "reports", "what it does", "layer", "caught by"))
    for fault in study.faults:
        by = ", ".join(fault.by) if fault.as_it_should else "**nothing**"
        yield _line(fault.name, " ".join(fault.reports), fault.about, fault.layer, by)
    yield ""
    if study.faults_untried:
        yield f"There was no time for {study.faults_untried} more."
        yield ""
    if study.detections:
        own, every = (median(getattr(one, name) for one in study.detections) for name in ("own", "scenarios"))
        worst = max(one.own for one in study.detections)
        yield f"The double count (sglang#31739) is caught after {own:g} scenarios of its code in the median of"
        yield f"{len(study.detections)} seeds, at most {worst}; that is scenario {every:g} where all cells are drawn in"
        yield "turns."
        yield ""


def _uncaught(study: Study) -> Iterator[str]:
    if not study.verdicts:
        return
    yield "## What nothing catches yet"
    yield ""
    alive = [one for one in study.verdicts if one.status in ("survived", "masked") and not one.equivalent]
    for target, verdicts in _by(alive, lambda verdict: verdict.target):
        for verdict in verdicts[:MOST_LISTED]:
            tried = max(fate.scenarios for fate in verdict.fates.values())
            why = f": {verdict.argument}" if verdict.argument else ""
            yield f"* `{title(verdict)}` {verdict.status} after {tried} scenarios{why}"
        if len(verdicts) > MOST_LISTED:
            yield f"* {len(verdicts) - MOST_LISTED} more of `{target}`"
    if not alive:
        yield "Every mutant that some scenario runs was killed, or is argued to do the same."
    yield ""
    unreached = [verdict for verdict in study.verdicts if verdict.status == "unreached" and not verdict.equivalent]
    reasons = _by(unreached, lambda verdict: verdict.argument or "no reason is written down")
    for why, verdicts in sorted(reasons, key=lambda pair: -len(pair[1])):
        yield f"* not run, {len(verdicts)} mutants: {why}"
    yield ""


def _by(verdicts: Iterable[Verdict], key: Callable[[Verdict], str]) -> list[tuple[str, list[Verdict]]]:
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        found.setdefault(key(verdict), []).append(verdict)
    return list(found.items())


def _section(title: str, columns: Sequence[str]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield _line(*columns)
    yield _line(*["---"] * len(columns))


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


_SECTIONS: tuple[Callable[[Study], Iterator[str]], ...] = (
    _targets,
    _control,
    _checks,
    _layers,
    _arms,
    _faults,
    _uncaught,
)
