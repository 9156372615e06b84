"""The command line: argument parsing, and nothing else."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from harness.bisect.decision import Subject
from harness.commands import bisect as bisecting
from harness.commands import check as checking
from harness.commands import compare as comparing
from harness.commands import history as histories
from harness.commands import machine
from harness.commands import mutate as mutating
from harness.commands import replay as replaying
from harness.commands import report as reporting
from harness.commands import verdict as judging
from harness.commands.plans import through_words
from harness.errors import BisectExit, Exit, HarnessError, ReaderGone

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Check sglang's Ascend attention backend in speculative decoding, on any release, checkout or installation.",
)

accept = typer.Typer(no_args_is_help=True, help="Acceptance of drafts: record it, compare it, scan releases for it.")
app.add_typer(accept, name="accept")

Sglang = Annotated[
    Optional[str],
    typer.Option(
        "--sglang",
        metavar="SPEC",
        help="installed, a release (0.5.18), a directory, or git:DIR@REV. Default: the installed sglang, else the "
        "newest cached release.",
    ),
]
Groups = Annotated[
    Optional[list[str]], typer.Option("--group", metavar="G", help="Only this check group; may be repeated.")
]
ProfileName = Annotated[str, typer.Option("--profile", help="dev, pr or nightly: how much is tried.")]
Seed = Annotated[
    Optional[int],
    typer.Option(
        "--seed", min=0, help="Seed of the drawn scenarios. pr ignores it; nightly without one draws new ones."
    ),
]
Device = Annotated[str, typer.Option("--device", help="emulated or npu.")]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Search and shrink everything anew, also what a pinned case shows already.")
]
First = Annotated[Optional[str], typer.Option("--from", metavar="REL", help="Oldest release; 0.5.15.")]
Last = Annotated[Optional[str], typer.Option("--to", metavar="REL", help="Newest release; the newest there is.")]
Jobs = Annotated[
    Optional[int], typer.Option("--jobs", metavar="N", min=1, help="Releases side by side; one for each core.")
]
Through = Annotated[
    Optional[str],
    typer.Option(
        "--through",
        metavar="COMMAND",
        help="Start the subject through this command, which is put in front of its own (prlimit, taskset, a wrapper).",
    ),
]
JsonFile = Annotated[Optional[Path], typer.Option("--json", metavar="FILE", help="Write the result as JSON.")]


@app.command()
def check(
    sglang: Sglang = None,
    group: Groups = None,
    profile: ProfileName = "dev",
    seed: Seed = None,
    device: Device = "emulated",
    fresh: Fresh = False,
    json: JsonFile = None,
    junit: Annotated[Optional[Path], typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    through: Through = None,
) -> None:
    """Run the checks on one sglang."""
    raise typer.Exit(checking.check(sglang, group or [], profile, seed, device, fresh, json, junit, through))


@app.command()
def scan(
    first: First = None,
    last: Last = None,
    group: Groups = None,
    profile: ProfileName = "dev",
    seed: Seed = None,
    fresh: Fresh = False,
    json: JsonFile = None,
    jobs: Jobs = None,
) -> None:
    """Run the checks on every release of a range, and show where each finding comes and goes."""
    raise typer.Exit(checking.scan(first, last, group or [], profile, seed, fresh, json, jobs))


@accept.command("run")
def accept_run(
    out: Annotated[
        Path, typer.Option("--out", metavar="RUN", help="Where the run is kept; one that is there goes on.")
    ],
    server: Annotated[
        Optional[str], typer.Option("--server", metavar="URL", help="A server that runs already.")
    ] = None,
    engine: Annotated[
        Optional[str], typer.Option("--engine", metavar="ARGS", help="Start sglang.launch_server with these arguments.")
    ] = None,
    tiny: Annotated[
        bool, typer.Option("--tiny", help="The trained pair, on the emulated NPU; takes no prompts.")
    ] = False,
    sglang: Sglang = None,
    device: Annotated[
        Optional[str],
        typer.Option("--device", help="emulated or npu; of a --server what is recorded, where it does not know."),
    ] = None,
    prompts: Annotated[
        Optional[Path],
        typer.Option(
            "--prompts", metavar="FILE", help="JSONL of GSM8K, MT-bench, HumanEval or input_ids; the shipped."
        ),
    ] = None,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Leave out the first so many prompts.")] = 0,
    count: Annotated[Optional[int], typer.Option("--count", min=1, help="Only so many prompts.")] = None,
    template: Annotated[str, typer.Option("--template", help="plain, qwen3, or a text with {prompt} in it.")] = "plain",
    thinking: Annotated[bool, typer.Option("--thinking", help="The template's thinking mode.")] = False,
    new_tokens: Annotated[int, typer.Option("--new-tokens", min=2, help="Longest answer.")] = 512,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Requests at once, all the time.")] = 8,
    stride: Annotated[
        int, typer.Option("--stride", min=0, help="Replay a step after every so many tokens; 0 replays none.")
    ] = 6,
    base: Annotated[
        Optional[Path], typer.Option("--base", metavar="RUN", help="Score and replay the answers of this run; its own.")
    ] = None,
    order: Annotated[int, typer.Option("--order", min=0, help="Seed of another order of the prompts, for --aa.")] = 0,
    patience: Annotated[float, typer.Option("--patience", min=1, help="Longest wait for an answer, in seconds.")] = 600,
    algorithm: Annotated[
        str, typer.Option("--algorithm", metavar="NAME", help="Of --tiny: DFLASH or EAGLE.")
    ] = "DFLASH",
    graphs: Annotated[bool, typer.Option("--graphs", help="Of --tiny: with captured graphs.")] = False,
) -> None:
    """Record what a server, an engine or the tiny pair accepts of its drafts."""
    from harness.commands import accept as accepting  # the statistics take a second to import

    asking = accepting.Asking(
        prompts, skip, count, template, thinking, new_tokens, concurrency, stride, base, order, patience
    )
    raise typer.Exit(accepting.run(server, engine, tiny, sglang, device, asking, algorithm, graphs, out))


@accept.command("compare")
def accept_compare(
    reference: Annotated[Path, typer.Argument(metavar="REF", help="The run that is right.")],
    candidate: Annotated[Path, typer.Argument(metavar="CAND", help="The run in question.")],
    profile: Annotated[str, typer.Option("--profile", help="nightly or pr: which margins.")] = "nightly",
    aa: Annotated[
        Optional[tuple[Path, Path]],
        typer.Option("--aa", metavar="RUN RUN", help="Two runs of one system, from which the noise is measured."),
    ] = None,
    two_looks: Annotated[
        bool, typer.Option("--two-looks", help="Declare two looks, of which this is the first: half of the prompts.")
    ] = False,
    more: Annotated[
        Optional[tuple[Path, Path]],
        typer.Option("--more", metavar="REF CAND", help="The second look: runs of both on as many fresh prompts."),
    ] = None,
    json: JsonFile = None,
) -> None:
    """Say whether two systems accept the same, and whether their answers are the target's own."""
    from harness.commands import accept as accepting

    raise typer.Exit(accepting.compare(reference, candidate, profile, aa, two_looks, more, json))


@accept.command("scan")
def accept_scan(
    first: First = None,
    last: Last = None,
    algorithm: Annotated[
        Optional[list[str]], typer.Option("--algorithm", metavar="NAME", help="DFLASH or EAGLE; both.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Play every session anew.")] = False,
    markdown: Annotated[
        Optional[Path], typer.Option("--markdown", metavar="FILE", help="Write the table for a document.")
    ] = None,
    jobs: Jobs = None,
) -> None:
    """Show how much of its draft each release accepts, with the same trained models on the same prompts."""
    from harness.commands import accept as accepting

    raise typer.Exit(accepting.scan(first, last, algorithm or [], fresh, jobs, markdown))


@app.command()
def replay(
    case: Annotated[Path, typer.Argument(metavar="CASE.json", help="A case file, as findings name it.")],
    sglang: Annotated[
        Optional[list[str]], typer.Option("--sglang", metavar="SPEC", help="May be repeated: side by side.")
    ] = None,
    device: Device = "emulated",
) -> None:
    """Run one scenario again, on one sglang or on several side by side."""
    raise typer.Exit(replaying.replay(case, sglang or [], device))


@app.command()
def report(
    documents: Annotated[
        list[Path], typer.Argument(metavar="DOCUMENT.json...", help="What other commands wrote with --json.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The report.")] = Path("report.html"),
) -> None:
    """Write one HTML report of the results of other commands."""
    raise typer.Exit(reporting.report(documents, out))


@app.command()
def history(
    add: Annotated[
        Optional[list[Path]],
        typer.Option("--add", metavar="RESULT.json", help="Add a night with this result first; may be repeated."),
    ] = None,
    subject: Annotated[
        str, typer.Option("--subject", help="Whose night it is: only its own nights are compared.")
    ] = "",
    file: Annotated[Path, typer.Option("--file", metavar="FILE", help="Where the history is kept.")] = Path(
        ".harness/history.jsonl"
    ),
    json: JsonFile = None,
) -> None:
    """Show the trend of nightly results, and where it changed its level."""
    raise typer.Exit(histories.history(file, add or [], subject, json))


Rate = Annotated[
    Optional[float],
    typer.Option(
        "--rate",
        metavar="P",
        min=0.01,
        max=1.0,
        help="Share of the runs that show it where it is bad; below 1, a sequential test makes as many as it takes.",
    ),
]


@app.command()
def verdict(
    case: Annotated[Path, typer.Argument(metavar="CASE.json", help="A case file, as findings name it.")],
    sglang: Sglang = None,
    device: Device = "emulated",
    rate: Rate = None,
    through: Through = None,
) -> None:
    """Say whether one case shows: status 0 good, 1 bad, 125 cannot be judged, 128 stop; for `git bisect run`."""
    raise typer.Exit(judging.verdict(case, sglang, Subject(device, through_words(through)), rate or 1.0))


@app.command()
def bisect(
    good: Annotated[
        str, typer.Option("--good", metavar="SPEC", help="An sglang that is right: a release, or git:DIR@REV.")
    ],
    bad: Annotated[str, typer.Option("--bad", metavar="SPEC", help="An sglang that is wrong.")],
    case: Annotated[Optional[Path], typer.Option("--case", metavar="CASE.json", help="The case to look for.")] = None,
    fingerprint: Annotated[
        Optional[str], typer.Option("--fingerprint", metavar="F", help="A finding that is pinned, or was found here.")
    ] = None,
    group: Groups = None,
    fixed: Annotated[bool, typer.Option("--fixed", help="Find what fixed it: --bad is the older end.")] = False,
    repo: Annotated[
        Optional[Path], typer.Option("--repo", metavar="DIR", help="A clone: go on among its commits.")
    ] = None,
    rate: Rate = None,
    device: Device = "emulated",
    fresh: Annotated[bool, typer.Option("--fresh", help="Judge everything anew.")] = False,
    json: JsonFile = None,
    markdown: Annotated[
        Optional[Path], typer.Option("--markdown", metavar="FILE", help="Write the report for an issue.")
    ] = None,
    through: Through = None,
) -> None:
    """Find the release, and in a clone the commit, from which a finding shows; without a case whatever has changed."""
    asked = bisecting.Asked(good, bad, fixed, repo, rate, Subject(device, through_words(through)), fresh)
    raise typer.Exit(bisecting.bisect(asked, case, fingerprint, group or [], json, markdown))


Only = Annotated[
    Optional[list[str]],
    typer.Option("--only", metavar="WORDS", help="Only code paths with these words (`DFLASH swa`); may be repeated."),
]
Drawn = Annotated[int, typer.Option("--seed", min=0, help="Seed of the drawn scenarios.")]


@app.command()
def record(
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The directory to write; it must not be there.")],
    subject: Annotated[
        str,
        typer.Option(
            "--subject", help="ascend, npu, triton, cuda, fa3, fa3-emulated, flashinfer or flashinfer-emulated."
        ),
    ] = "ascend",
    sglang: Sglang = None,
    profile: ProfileName = "dev",
    seed: Drawn = 0,
    only: Only = None,
    through: Through = None,
) -> None:
    """Record what a subject sees, in a directory that can be compared with any other; a killed one goes on."""
    raise typer.Exit(comparing.record(subject, sglang, profile, seed, only or [], out, through))


@app.command()
def verify(run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a recording.")]) -> None:
    """Check that a recording is whole: every size, hash, scenario and array."""
    raise typer.Exit(comparing.verify(run))


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="SUBJECT@SPEC (ascend@0.5.18), or a recording's directory.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side, likewise.")],
    profile: ProfileName = "dev",
    seed: Drawn = 0,
    only: Only = None,
    through_a: Annotated[
        Optional[str], typer.Option("--through-a", metavar="COMMAND", help="As --through, of A.")
    ] = None,
    through_b: Annotated[
        Optional[str], typer.Option("--through-b", metavar="COMMAND", help="As --through, of B.")
    ] = None,
    json: JsonFile = None,
) -> None:
    """Compare two subjects or recordings: integers exactly, numbers by each side's error against float64."""
    raise typer.Exit(comparing.compare((a, b), profile, seed, only or [], (through_a, through_b), json))


@app.command()
def mutate(
    sglang: Sglang = None,
    target: Annotated[
        Optional[list[str]], typer.Option("--target", metavar="FILE:FUNCTION", help="Only this; may be repeated.")
    ] = None,
    group: Annotated[
        Optional[list[str]], typer.Option("--group", metavar="G", help="Only these targets; may be repeated.")
    ] = None,
    limit: Annotated[Optional[int], typer.Option("--limit", metavar="N", min=1, help="At most N mutants.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the mutants drawn and of the scenarios.")] = 0,
    sweep: Annotated[bool, typer.Option("--sweep", help="Put every mutant to the sweep, too.")] = False,
    faults: Annotated[
        bool, typer.Option("--faults", help="The faults of the catalogue; no mutants but of those named.")
    ] = False,
    without: Annotated[
        Optional[list[str]],
        typer.Option("--without", metavar="CHECK", help="Switch this check off, to see what lives; may be repeated."),
    ] = None,
    minutes: Annotated[
        Optional[float],
        typer.Option("--minutes", metavar="M", min=0, help="Be done after M minutes, with what there was time for."),
    ] = None,
    json: JsonFile = None,
    markdown: Annotated[
        Optional[Path], typer.Option("--markdown", metavar="FILE", help="Write the result as a page.")
    ] = None,
) -> None:
    """Run mutants of sglang's own source, and show which check kills each, and which survive."""
    named = (target or [], group or [])
    raise typer.Exit(
        mutating.mutate(sglang, *named, limit, seed, sweep, faults, without or [], minutes, json, markdown)
    )


@app.command(context_settings={"allow_interspersed_args": False})
def emulate(command: Annotated[list[str], typer.Argument(metavar="COMMAND...")], sglang: Sglang = None) -> None:
    """Run a command whose Python processes all have an emulated NPU, and the sglang that is named."""
    machine.emulate(sglang, command)


@app.command()
def doctor() -> None:
    """Say what this machine can run, and what is missing for each subject."""
    raise typer.Exit(machine.doctor())


def main() -> None:
    """Run a command; what goes wrong is one sentence on stderr and an exit status of `harness.errors.Exit`.

    A fault of the harness itself is status 3 with its traceback, a reader that went away 141: neither may be taken for
    findings, which is what the 1 that Python would end with means. `verdict` ends with a status of `BisectExit`.
    """
    try:
        _run()
    except SystemExit as ended:
        if sys.argv[1:2] == ["verdict"] and isinstance(ended.code, int) and ended.code not in tuple(BisectExit):
            raise SystemExit(max(ended.code, int(BisectExit.STOP))) from None
        raise


def _run() -> None:
    try:
        app()
    except HarnessError as error:
        Console(stderr=True).print(f"harness: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        raise SystemExit(int(error.exit_status)) from None
    except ReaderGone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except Exception:
        traceback.print_exc()
        raise SystemExit(int(Exit.UNKNOWN)) from None
