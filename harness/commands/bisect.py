"""Finding the release, and the commit, in which something changed."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from harness.bisect.answer import Answer
from harness.bisect.asking import Asking
from harness.bisect.bisection import Change, Ends, search, verify_ends
from harness.bisect.blame import Tracers
from harness.bisect.decision import Subject
from harness.bisect.line import Line, commit_line, line_between
from harness.bisect.notebook import Notebook
from harness.bisect.revisions import Revision
from harness.bisect.scan import scan
from harness.bisect.transitions import Transition, transitions
from harness.bisect.verdict import check_of
from harness.bisect.window import Window
from harness.commands.console import output
from harness.commands.plans import planned, require_device
from harness.errors import CannotJudge, Exit, HarnessError, UsageError
from harness.files import safe_name, write_atomically
from harness.report import bisection as report
from harness.report.document import encode
from harness.report.judgement import GRAVE, judge
from harness.report.progress import Bars
from harness.report.replay import FOLDER, case_path, write_cases
from harness.scenario import pinned
from harness.scenario.case import Case, read_case
from harness.subject.clone import Clone
from harness.subject.source import resolve

#: What both ends are checked for where the user names no case.
DEFAULT_GROUPS = ("metadata",)


class Asked(NamedTuple):
    """The question: two ends, what to look for between them, and where."""

    good: str
    bad: str
    fixed: bool = False
    repository: Path | None = None
    rate: float | None = None
    subject: Subject = Subject()
    fresh: bool = False

    @property
    def older(self) -> str:
        """The end that the search starts from."""
        return self.bad if self.fixed else self.good

    @property
    def newer(self) -> str:
        """The other end."""
        return self.good if self.fixed else self.bad


def bisect(
    asked: Asked,
    case_file: Path | None,
    fingerprint: str | None,
    groups: Sequence[str],
    json_file: Path | None,
    markdown_file: Path | None,
) -> Exit:
    """Search for the case of a file or a fingerprint, or for all that differs between the ends, and show the answers.

    Status 0 where every answer is one revision, 3 where one is a range, or could not be given beside others.
    """
    if sum(map(bool, (case_file, fingerprint, groups))) > 1:
        raise UsageError("--case, --fingerprint and --group say what to look for: name one of them.")
    require_device(asked.subject.device)
    with Bars(Console(stderr=True)) as bars:
        line = line_between(asked.older, asked.newer, asked.repository)
        if case_file is not None:
            cases = {case_file: read_case(case_file)}
        elif fingerprint is not None:
            cases = dict([_known(fingerprint)])
        else:
            cases = _changed(asked, line, groups or DEFAULT_GROUPS, bars)
        for case in cases.values():
            check_of(case)
        notebooks = [Notebook(case, asked.rate, asked.subject, asked.fresh) for case in cases.values()]
        asking = Asking(list(cases.values()), notebooks, asked.rate, asked.subject, bars.note)
        answers, refused = [], []
        with Tracers(asked.subject) as tracers:
            for place, path in enumerate(cases):
                try:
                    answers.append(_answer(asked, line, asking, place, path, tracers, bars))
                except HarnessError as error:
                    refused.append(error)
                    if len(cases) > 1:
                        bars.note(f"{path}: {error}")
    if not answers:
        raise refused[0]
    for answer in answers:
        report.show_answer(output(), answer)
    if json_file is not None:
        write_atomically(json_file, encode(report.document(answers)))
    if markdown_file is not None:
        write_atomically(markdown_file, report.markdown(answers).encode())
    exact = not refused and all(not answer.change.skipped for answer in answers)
    return Exit.PASSED if exact else Exit.UNKNOWN


def _known(fingerprint: str) -> tuple[Path, Case]:
    """The case of a fingerprint: one that is pinned, or one that an earlier command wrote."""
    for name, case in pinned.pinned_cases().items():
        if case.fingerprint == fingerprint:
            return pinned.FOLDER / f"{name}.json", case
    for path in sorted(FOLDER.glob(f"*/{safe_name(fingerprint, '-')}.json")):
        return path, read_case(path)
    raise UsageError(
        f"no case is known for the fingerprint {fingerprint!r}: `harness scan` writes one for each finding, or name "
        "a file with --case."
    )


def _changed(asked: Asked, line: Line, groups: Sequence[str], bars: Bars) -> dict[Path, Case]:
    """Check both ends, and take the cases of what has changed between them as the user says."""
    plan = planned(groups, "dev", None, asked.subject.device, asked.fresh)._replace(through=asked.subject.through)
    bars.note(f"checking {' and '.join(groups)} at both ends: --group names others.")
    sources = [resolve(end.spec, bars.note) for end in (line.revisions[0], line.revisions[-1])]
    runs = scan(sources, plan, lambda name, *step: bars.advance(f"sglang {name}", *step), anew=asked.fresh)
    for run in runs:
        if "subject" in run.unknown:
            raise CannotJudge(run.unknown["subject"])
        write_cases(run)
    names = {one.fingerprint for one in chosen(asked, transitions(runs), groups)}
    bad = runs[0] if asked.fixed else runs[1]
    return {case_path(bad, one): read_case(case_path(bad, one)) for one in bad.findings if one.fingerprint in names}


def chosen(asked: Asked, changes: Sequence[Transition], groups: Sequence[str]) -> list[Transition]:
    """Those of the `changes` between the ends that go the way that the user says.

    Raises UsageError where there are none, and where users were hurt by what goes the other way alone: a fault that
    went from the `good` end on outweighs what is latent there or harmless.
    """
    if not changes:
        raise UsageError(f"no finding of {' and '.join(groups)} differs between {asked.older} and {asked.newer}.")
    wanted = [one for one in changes if one.change == ("fixed" if asked.fixed else "broken")]
    other = [one for one in changes if one not in wanted]
    if not wanted and asked.fixed:
        raise UsageError(
            f"nothing was fixed between {asked.older} and {asked.newer}, where {len(other)} findings came: leave out "
            "--fixed, to find what broke them."
        )
    if not wanted or (not _grave(wanted) and _grave(other) and not asked.fixed):
        went = _grave(other) or other
        slight = (
            f"; {wanted[0].fingerprint}, which broke there and hurts nobody by default, is searched for with "
            "--fingerprint"
            if wanted
            else ""
        )
        raise UsageError(
            f"the ends are the wrong way round: between {asked.older} and {asked.newer} {len(went)} "
            f"{'faults' if _grave(other) else 'findings'} went, and none came; `harness bisect --fixed --good "
            f"{asked.newer} --bad {asked.older}` finds what fixed them{slight}."
        )
    return wanted


def _grave(changes: Sequence[Transition]) -> list[Transition]:
    """The changes of what users meet by default, or of what nobody has judged yet."""
    return [one for one in changes if judge(one.fingerprint).kind in GRAVE]


def _answer(asked: Asked, line: Line, asking: Asking, place: int, path: Path, tracers: Tracers, bars: Bars) -> Answer:
    """Search the line, then the commits between the two releases where there is a clone to look in."""
    asking.measure(line.revisions[0 if asked.fixed else -1])
    ends, change = _searched(asked, line.revisions, asking, place, bars)
    release, commit = (None, change) if line.clone else (change, None)
    if line.clone is None and asked.repository is not None:
        clone = Clone(asked.repository)
        commits = commit_line(clone, *(clone.tagged(one.name) for one in (change.before, change.after)))
        _, commit = _searched(asked, commits.revisions, asking, place, bars)
    assert asking.rates is not None
    case, found = asking.cases[place], commit or change
    bars.note(f"comparing what runs in {found.before.name} and in {found.after.name}")
    hunks, changed = tracers.blame(case, resolve(found.before.spec), resolve(found.after.spec))
    return Answer(
        case,
        _short(path),
        asked.good,
        asked.bad,
        asked.fixed,
        ends,
        asking.rates[place],
        release,
        commit,
        hunks,
        changed,
    )


def _searched(
    asked: Asked, revisions: Sequence[Revision], asking: Asking, place: int, bars: Bars
) -> tuple[Ends, Change]:
    judge = partial(asking.judge, place)

    def watch(line: Sequence[Revision], window: Window) -> None:
        ends = f"{line[window.before].name} … {line[window.after].name}"
        bars.note(f"{ends}: {len(window.open)} between, about {window.steps_left} judgements left")

    ends = verify_ends(revisions[0], revisions[-1], judge, asked.fixed)
    return ends, search(revisions, ends, judge, watch)


def _short(path: Path) -> str:
    """The path as a command takes it here: from the working directory where it lies below it."""
    here = Path.cwd()
    return str(path.resolve().relative_to(here)) if path.resolve().is_relative_to(here) else str(path)
