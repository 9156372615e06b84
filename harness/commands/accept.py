"""How much of its draft a system accepts, and whether that is what another one accepts."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace
from rich.console import Console

import harness
from harness.bisect.accept_scan import scan as scan_releases
from harness.campaign import accept_tiny as tiny
from harness.campaign.accept_run import AcceptRun, begun, require_speculation, system_of
from harness.commands.console import output
from harness.commands.plans import require_device
from harness.errors import Exit, UsageError
from harness.files import write_atomically
from harness.parity import acceptance_file as runs
from harness.parity.acceptance_comparison import compare as compare_runs
from harness.parity.acceptance_prompts import SHIPPED, Prompt, prompts_digest, read_prompts, template_text
from harness.parity.acceptance_run import (
    SCHEMA,
    Header,
    Setting,
    Step,
    assembled,
    require_same_setting,
    require_whole,
)
from harness.report.acceptance import show_accept_run, show_comparison
from harness.report.acceptance_scan import scan_markdown, show_scan
from harness.report.document import encode
from harness.report.progress import Bars
from harness.subject import wheels
from harness.subject.emulation import require_installed
from harness.subject.server.api import Server
from harness.subject.server.launched import launched
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor


class Asking(NamedTuple):
    """What is asked of a server, by the options of `harness accept run`."""

    prompts: Path | None
    skip: int
    most: int | None
    template: str
    thinking: bool
    new_tokens: int
    concurrency: int
    stride: int
    base: Path | None
    order: int
    patience: float


def run(
    server: str | None,
    engine: str | None,
    tiny_pair: bool,
    spec: str | None,
    device: str | None,
    asking: Asking,
    algorithm: str,
    graphs: bool,
    out: Path,
) -> Exit:
    """Record a run of one of the three; raises UsageError for none or more of them."""
    if (server is not None) + (engine is not None) + tiny_pair != 1:
        raise UsageError("name one of --server URL, --engine ARGS and --tiny: which one is to be asked.")
    if server is not None:
        return _run_server(server, device, asking, out)
    if engine is not None:
        return _run_engine(engine, spec, device or "emulated", asking, out)
    return _run_tiny(spec, algorithm, graphs, asking, out)


def _run_server(url: str, device: str | None, asking: Asking, out: Path) -> Exit:
    """Ask a server that runs already."""
    with Bars(Console(stderr=True)) as bars:
        _ask(url, url, device, asking, out, bars)
    return Exit.PASSED


def _run_engine(arguments: str, spec: str | None, device: str, asking: Asking, out: Path) -> Exit:
    """Start a server with `arguments`, ask it, and end it."""
    require_device(device)
    if device == "emulated":
        require_installed()
    with Bars(Console(stderr=True)) as bars:
        source = resolve(spec, bars.note)
        with launched(source, arguments, device, bars.note) as started:
            _ask(
                started.url, f"sglang {source.release}", "emulated" if device == "emulated" else None, asking, out, bars
            )
    return Exit.PASSED


def _ask(url: str, where: str, device: str | None, asking: Asking, out: Path, bars: Bars) -> None:
    with Server(url, asking.patience, asking.concurrency) as server:
        base = runs.read(asking.base) if asking.base else None
        info = server.info()
        algorithm, draft_tokens = require_speculation(info, where, asking.concurrency)
        template = template_text(asking.template, asking.thinking)
        prompts = _tokens(server, template, read_prompts(asking.prompts or SHIPPED, asking.most, asking.skip))
        setting = Setting(
            prompts_digest(prompts),
            len(prompts),
            template,
            asking.thinking,
            asking.new_tokens,
            asking.concurrency,
            algorithm,
            draft_tokens,
        )
        if base is not None:
            require_whole(base)
            require_same_setting(base.header.setting, base.path, setting, out)
        system = system_of(info, where, device)
        date, digest = time.strftime("%Y-%m-%d"), base.digest if base else ""
        begun(out, Header(SCHEMA, date, harness.__version__, setting, system, digest, asking.stride, asking.order))
        unscored = AcceptRun(server, out, prompts, base).go_on(
            lambda stage, done, total: bars.advance(f"{where}, {stage}", "asked", done, total)
        )
    if unscored:
        bars.note(f"{where} scores nothing, so tokens that differ may not be judged: {unscored}")
    show_accept_run(output(), runs.read(out))


def _run_tiny(spec: str | None, algorithm: str, graphs: bool, asking: Asking, out: Path) -> Exit:
    """Have the trained pair answered by the release's own scheduler on the emulated NPU."""
    if out.exists():
        raise UsageError(f"{out} is there already: name another file, or delete it.")
    drafted = tiny.drafted(algorithm)
    base = runs.read(asking.base) if asking.base else None
    if base is not None:
        require_whole(base)
        require_same_setting(base.header.setting, base.path, tiny.setting(drafted), out)
    with Bars(Console(stderr=True)) as bars:
        source = resolve(spec, bars.note)
        with Supervisor(source) as supervisor:
            played = tiny.play(supervisor, drafted, "graph" if graphs else "eager")
            header = replace(played.header, base=base.digest if base else "", stride=asking.stride)
            run = assembled(out, header, tiny.records(played))
            steps: tuple[Step, ...] = ()
            if asking.stride and not played.error:
                bars.note(f"sglang {source.release}: replaying a step after every {asking.stride} tokens")
                steps = tiny.replayed(supervisor, played, base or run, asking.stride)
    for said in (played.refusal, played.error):
        if said:
            bars.note(f"sglang {source.release}: {said}")
    runs.write(out, header, [*tiny.records(played), *steps])
    show_accept_run(output(), runs.read(out))
    return Exit.UNKNOWN if played.error else Exit.PASSED


def compare(
    reference: Path,
    candidate: Path,
    profile: str,
    aa: tuple[Path, Path] | None,
    two_looks: bool,
    more: tuple[Path, Path] | None,
    json_file: Path | None,
) -> Exit:
    """Compare two runs, show the ladder, and write the JSON document asked for."""
    pair, fresh = ((runs.read(both[0]), runs.read(both[1])) if both else None for both in (aa, more))
    found = compare_runs(runs.read(reference), runs.read(candidate), profile, pair, two_looks, fresh)
    show_comparison(output(), found)
    if json_file is not None:
        write_atomically(json_file, encode(found))
    return found.verdict.exit_status


def scan(
    first: str | None,
    last: str | None,
    algorithms: Sequence[str],
    fresh: bool,
    jobs: int | None,
    markdown_file: Path | None,
) -> Exit:
    """Compare what each release from `first` to `last` accepts of the trained drafts with what plain torch does.

    `jobs` releases are asked side by side, as many as there are cores where it is None. What an earlier scan has played
    is taken from the cache, unless everything is to be `fresh`.
    """
    asked = [tiny.drafted(algorithm) for algorithm in algorithms] or list(tiny.DRAFTED)
    with Bars(Console(stderr=True)) as bars:
        sources = [resolve(release, bars.note) for release in wheels.releases_between(first, last, bars.note)]
        found = scan_releases(
            sources, asked, lambda release, *rest: bars.advance(f"sglang {release}", *rest), jobs, fresh
        )
    show_scan(output(), found)
    if markdown_file is not None:
        write_atomically(markdown_file, scan_markdown(found).encode())
    statuses = {one.exit_status for one in found}
    return next((status for status in (Exit.FINDINGS, Exit.UNKNOWN) if status in statuses), Exit.PASSED)


def _tokens(server: Server, template: str, prompts: Sequence[Prompt]) -> list[tuple[int, ...]]:
    """The prompts as the server gets them; texts in the template, tokens as they are."""
    return [
        prompt if isinstance(prompt, tuple) else server.tokenize(template.replace("{prompt}", prompt))
        for prompt in prompts
    ]
