"""What a user reads of a run, a scan and a replay, in a terminal 200 columns wide."""

from collections.abc import Callable, Sequence
from io import StringIO

import pytest
from msgspec.structs import replace
from rich.console import Console

from harness.bisect.transitions import Transition, transitions
from harness.campaign.run import Run
from harness.campaign.tally import Counts
from harness.checks.finding import Finding, failed, unknown
from harness.checks.registry import CHECKS
from harness.report import terminal as module
from harness.report.comparison import Replayed, describe, show_replay
from harness.report.judgement import Judgement
from harness.report.replay import command, lost_command
from harness.report.terminal import by_weight, show_run, show_scan
from harness.scenario import GateScenario, MetadataScenario, Pool, Request, VerifyRequest, VerifyScenario
from harness.scenario.observation import Changed, Emitted, Fault, Observation, Seen
from harness.shadow.overhead import Overhead
from harness.subject.losses import Losses, LostScenario
from tests import ideal
from tests.runs import BLOCK_TWICE, REFUSED, VERIFY, info, made_run

JUDGEMENTS = {
    BLOCK_TWICE.fingerprint: Judgement("fault", (), "the block is added twice", ("sglang#31739",)),
    REFUSED.fingerprint: Judgement("harmless", (), "nobody has such a device"),
}


@pytest.fixture(autouse=True)
def _own_judgements(monkeypatch: pytest.MonkeyPatch) -> None:
    unjudged = Judgement("unjudged", (), "nobody has judged this")
    monkeypatch.setattr(module, "judge", lambda fingerprint: JUDGEMENTS.get(fingerprint, unjudged))


def shown(show: Callable[[Console], None]) -> str:
    """What `show` prints."""
    file = StringIO()
    show(Console(file=file, width=200))
    return file.getvalue()


def run_shown(run: Run) -> str:
    return shown(lambda console: show_run(console, run))


def scan_shown(runs: Sequence[Run], changes: Sequence[Transition] | None = None) -> str:
    found = transitions(runs) if changes is None else changes
    return shown(lambda console: show_scan(console, runs, found))


def rows(text: str, title: str) -> list[list[str]]:
    """The cells of the table whose first column is called `title`."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("┃") and title in line.split("┃")[1])
    table: list[list[str]] = []
    for line in lines[start + 2 :]:
        if not line.startswith("│"):
            break
        table.append([cell.strip() for cell in line.split("│")[1:-1]])
    return table


def test_a_run_says_who_was_judged_and_how() -> None:
    text = run_shown(made_run(subject=info(spec="git:x@main", revision="0123456789abcdef")))
    first = text.splitlines()[0]
    assert first == (
        "sglang 0.5.18 at 0123456789ab (git:x@main), device emulated, python 3.11.7 torch 2.13.0 "
        "torch_npu emulated cann emulated, profile dev, seed 7"
    )


LOST = LostScenario(VERIFY, Fault("crash", "killed by SIGSEGV", "words\nthe [last] words\n"))


@pytest.mark.parametrize("show", [run_shown, lambda run: scan_shown([run])], ids=["run", "scan"])
def test_losses_by_chance_are_shown_with_the_last_of_them(show: Callable[[Run], str]) -> None:
    sentence = (
        "The subject was lost 3 times by chance (the last one crash: killed): asked again, it answered every scenario"
    )
    assert sentence in show(replace(made_run(), losses=Losses(10, 3, 0, 3, "crash: killed")))
    assert "was lost" not in show(replace(made_run(), losses=Losses(10, 3, 0, 0)))


def test_a_scenario_that_costs_the_subject_is_shown_with_its_last_words_and_its_command() -> None:
    run = replace(made_run(), lost=(LOST,))
    lines = run_shown(run).splitlines()
    start = lines.index("LOST crash: killed by SIGSEGV. Its last words: the [last] words")
    assert lines[start + 1] == f"  replay: {lost_command(run, LOST)}"


def test_of_many_scenarios_that_cost_the_subject_some_are_shown_and_the_others_counted() -> None:
    text = run_shown(replace(made_run(), lost=(LOST,) * 5))
    assert text.count("LOST crash") == module.MOST_LOST
    assert "2 more scenarios cost the subject: see .harness/lost." in text


def test_every_check_has_a_row_with_its_counts_and_claim() -> None:
    text = run_shown(made_run(checks={"kv-lengths": Counts(ran=40, failed=3, unknown=2), "device-gate": Counts(ran=6)}))
    assert rows(text, "check") == [
        ["kv-lengths", "40", "3", "2", CHECKS["kv-lengths"].claim],
        ["device-gate", "6", "0", "0", CHECKS["device-gate"].claim],
    ]


def test_a_finding_shows_message_meaning_judgement_and_replay_command() -> None:
    run = made_run(BLOCK_TWICE)
    text = run_shown(run)
    assert f"FAULT {BLOCK_TWICE.fingerprint}\n  {BLOCK_TWICE.message}\n" in text
    assert f"  why it matters: {BLOCK_TWICE.meaning}\n" in text
    assert "  judgement: the block is added twice (sglang#31739)\n" in text
    assert f"  replay: {command(run, BLOCK_TWICE)}\n" in text


def test_a_finding_that_nobody_has_judged_says_so() -> None:
    text = run_shown(made_run(replace(BLOCK_TWICE, fingerprint="kv-lengths:new")))
    assert "UNJUDGED kv-lengths:new" in text
    assert "  judgement: nobody has judged this\n" in text


def test_a_long_line_is_never_broken() -> None:
    long = replace(BLOCK_TWICE, message="x" * 500)
    assert f"  {'x' * 500}\n" in run_shown(made_run(long))


def test_findings_that_hurt_most_come_first() -> None:
    unjudged = replace(BLOCK_TWICE, fingerprint="kv-lengths:new")
    assert by_weight([REFUSED, unjudged, BLOCK_TWICE]) == [BLOCK_TWICE, unjudged, REFUSED]


def test_of_findings_that_hurt_alike_the_plainest_check_comes_first() -> None:
    plain = replace(BLOCK_TWICE, fingerprint="kv-lengths:new")
    other = replace(BLOCK_TWICE, fingerprint="replay-fresh:new", check="replay-fresh")
    assert by_weight([other, plain]) == [plain, other]


def test_of_findings_that_hurt_alike_in_one_check_the_simplest_comes_first() -> None:
    larger = replace(VERIFY, rounds=((Request(1), Request(2, row=2)),))
    simple = replace(BLOCK_TWICE, fingerprint="kv-lengths:simple")
    complicated = replace(BLOCK_TWICE, fingerprint="kv-lengths:complicated", scenario=larger)
    assert by_weight([complicated, simple]) == [simple, complicated]


@pytest.mark.parametrize(
    ("run", "last"),
    [
        (made_run(), "All checks ran and passed."),
        (made_run(unknown={"subject": "lost"}), "No verdict: see UNKNOWN above."),
        (made_run(BLOCK_TWICE), "1 findings: 1 fault."),
        (made_run(BLOCK_TWICE, REFUSED, unknown={"window-mask": "lost"}), "2 findings: 1 fault, 1 harmless."),
    ],
    ids=["passed", "unknown", "finding", "findings and unknown"],
)
def test_the_last_line_is_the_verdict(run: Run, last: str) -> None:
    assert run_shown(run).splitlines()[-1] == last


def test_a_run_says_what_the_sanitizer_added_where_attention_ran() -> None:
    lines = run_shown(replace(made_run(), overhead=Overhead(12.0, 2.0))).splitlines()
    assert lines[-2] == "The sanitizer took 2.00 s of the 12.00 s in which attention ran: it added 20.0%."
    assert "sanitizer took" not in run_shown(made_run())


def test_what_could_not_be_judged_is_shown_with_its_reason() -> None:
    assert "UNKNOWN window-mask: it never ran\n" in run_shown(made_run(unknown={"window-mask": "it never ran"}))


def test_a_scan_has_one_row_per_release() -> None:
    runs = [made_run(BLOCK_TWICE, subject=info("0.5.15")), made_run(subject=info("0.5.16")), made_run(REFUSED)]
    table = rows(scan_shown(runs), "release")
    assert table == [
        ["0.5.15", "1 findings, 1 that users meet", "right"],
        ["0.5.16", "right", "right"],
        ["0.5.18", "right", "1 lesser findings"],
    ]


def test_a_release_without_a_subject_is_unknown_with_its_reason() -> None:
    lost = made_run(subject=info("0.5.15"), checks={}, unknown={"subject": "it died while starting"})
    text = scan_shown([lost, made_run()])
    assert rows(text, "release")[0] == ["0.5.15", "UNKNOWN", "UNKNOWN"]
    assert "0.5.15 UNKNOWN subject: it died while starting" in text


def test_a_scan_without_any_subject_has_a_row_per_release_still() -> None:
    lost = made_run(subject=info("0.5.15"), checks={}, unknown={"subject": "no torch"})
    assert rows(scan_shown([lost]), "release") == [["0.5.15", "UNKNOWN"]]


def test_every_failing_cell_shows_its_heaviest_finding_with_its_command() -> None:
    run = made_run(BLOCK_TWICE, replace(BLOCK_TWICE, fingerprint="kv-lengths:new", message="another"))
    text = scan_shown([run])
    assert f"0.5.18 metadata: {BLOCK_TWICE.message}\n  {command(run, BLOCK_TWICE)}\n" in text
    assert "another" not in text


def test_the_history_has_a_row_per_finding_and_a_sign_per_release() -> None:
    runs = [
        made_run(BLOCK_TWICE, subject=info("0.5.15")),
        made_run(subject=info("0.5.16")),
        made_run(subject=info("0.5.17"), unknown={"subject": "lost"}),
        made_run(subject=info("0.5.19", capabilities=[])),
    ]
    assert rows(scan_shown(runs), "finding") == [[BLOCK_TWICE.fingerprint, "✗", "·", "?", "", "fault"]]


def test_harmless_findings_are_counted_and_left_out_of_the_history() -> None:
    text = scan_shown([made_run(BLOCK_TWICE, REFUSED)])
    assert [row[0] for row in rows(text, "finding")] == [BLOCK_TWICE.fingerprint]
    assert "1 findings that are harmless are left out: see --json.\n" in text


def test_a_scan_without_findings_has_no_history() -> None:
    assert "judgement" not in scan_shown([made_run()])


def test_changes_are_told_between_the_releases_where_they_happened_with_the_link_of_their_tags() -> None:
    releases = ("0.5.9", "0.5.15", "0.5.16", "0.5.17", "0.5.18", "0.5.19")
    runs = [made_run(BLOCK_TWICE, subject=info(release)) for release in releases]
    changes = [
        Transition(BLOCK_TWICE.fingerprint, "fixed", "0.5.19", "0.5.18"),
        Transition(BLOCK_TWICE.fingerprint, "broken", "0.5.9", "0.5.15"),
        Transition("window-mask:lesser", "broken", "0.5.15", "0.5.17", ("0.5.16",)),
        Transition(BLOCK_TWICE.fingerprint, "broken", "0.5.15", "0.5.17"),
    ]
    text = scan_shown(runs, changes)
    compare = "https://github.com/sgl-project/sglang/compare"
    assert (
        text.split("\n0.5.9 → ")[1]
        == f"""0.5.15  {compare}/v0.5.9...v0.5.15
  broken fault {BLOCK_TWICE.fingerprint}

0.5.15 → 0.5.17  {compare}/v0.5.15...v0.5.17
  broken fault {BLOCK_TWICE.fingerprint}
  broken unjudged window-mask:lesser, 0.5.16 not judged

0.5.18 → 0.5.19  {compare}/v0.5.18...v0.5.19
  fixed fault {BLOCK_TWICE.fingerprint}
"""
    )


ODD_NAMES = ["dir[1]", "[red", "[bold]", "[/]", "[/bold]", "\\[x]"]


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_a_spec_with_brackets_is_shown_as_it_is_in_a_run(odd: str) -> None:
    assert f"({odd})" in run_shown(made_run(BLOCK_TWICE, subject=info(spec=odd)))


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_a_release_with_brackets_is_shown_as_it_is_in_a_scan(odd: str) -> None:
    runs = [made_run(subject=info("0.5.15")), made_run(BLOCK_TWICE, subject=info(odd), unknown={"subject": "lost"})]
    text = scan_shown(runs)
    assert rows(text, "release")[1][0] == odd
    assert f"{odd} metadata: " in text
    assert f"{odd} UNKNOWN subject" in text
    assert f"0.5.15 → {odd}  " in text


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_texts_with_brackets_are_shown_as_they_are(odd: str) -> None:
    finding = replace(BLOCK_TWICE, fingerprint=f"kv-lengths:{odd}", message=f"m {odd}", meaning=f"w {odd}")
    text = run_shown(made_run(finding, unknown={odd: f"r {odd}"}))
    for part in (f"kv-lengths:{odd}", f"m {odd}", f"w {odd}", f"{odd}: r {odd}"):
        assert f"{part}\n" in text


def replay_shown(scenario: MetadataScenario | GateScenario, *replays: Replayed) -> str:
    return shown(lambda console: show_replay(console, scenario, replays))


def replayed(observation: Observation, *findings: Finding, release: str = "0.5.18", spec: str = "0.5.18") -> Replayed:
    return Replayed(info(release, spec), observation, {CHECKS["kv-lengths"]: failed(*findings)})


def test_a_replay_describes_the_scenario() -> None:
    scenario = MetadataScenario(
        "DFLASH",
        "target_verify",
        ((Request(125, host_lag=2),), (Request(7),)),
        executor="graph",
        draft_tokens=4,
        pool=Pool(page_size=64),
        buckets=(1, 2),
    )
    assert describe(scenario) == [
        "DFLASH target_verify, graph, attention mha, 4 draft tokens, page size 64, context 1024, "
        "host lengths published as int64",
        "captured batch sizes: 1, 2",
        "round 0: prefixes [125], host ahead by [2]",
        "round 1: prefixes [7], host ahead by [0]",
    ]
    assert describe(GateScenario("npu")) == ["start DFLASH with device='npu'"]


def test_a_replay_describes_a_verify() -> None:
    tree = VerifyRequest((0, 1, 2), ((0, 3, 3), (1, 0, 0), (0, 0, 9)), (0, 0), ((1,), (0,), (2,)))
    chain = VerifyRequest((1, 0, 2), ((0, 1, 2),) * 3, temperature=0.5, top_k=2, top_p=0.9)

    assert describe(VerifyScenario("EAGLE", (tree, chain))) == [
        "EAGLE verify on the ascend path, 3 tokens a request",
        "request 0: token 0, then drafted [1, 2] after nodes [0, 0]; greedy",
        "  logits after node 0: [0, 3, 3], allowed [1]",
        "  logits after node 1: [1, 0, 0], allowed [0]",
        "  logits after node 2: [0, 0, 9], allowed [2]",
        "request 1: token 1, then drafted [0, 2]; temperature=0.5, top_k=2, top_p=0.9",
        *[f"  logits after node {node}: [0, 1, 2]" for node in range(3)],
    ]


def test_a_replay_shows_two_sglangs_side_by_side() -> None:
    right = ideal.observation(VERIFY)
    wrong = ideal.with_field(right, "seq_lens_cpu_int", [133])
    text = replay_shown(VERIFY, replayed(right), replayed(wrong, BLOCK_TWICE, release="0.5.19", spec="installed"))
    assert "0.5.18 (0.5.18)" in text
    assert "0.5.19 (installed)" in text
    assert ["seq_lens_cpu_int", "[129]", "[133]"] in rows(text, "seen")
    assert rows(text, "check") == [["kv-lengths", "pass", "fail"]]
    assert f"0.5.19: {BLOCK_TWICE.message}: {BLOCK_TWICE.meaning} [{BLOCK_TWICE.fingerprint}]\n" in text


@pytest.mark.parametrize(
    ("observation", "row"),
    [
        (Observation(fault=Fault("crash", "killed by [SIGKILL]")), ["fault", "crash: killed by [SIGKILL]"]),
        (Observation(verdict="only [cuda] is supported"), ["answer", "only [cuda] is supported"]),
        (Observation((Seen(error="RuntimeError: [/] shape"),)), ["error", "RuntimeError: [/] shape"]),
        (
            Observation((Seen(changed=(Changed("seq_lens", "int64", (1, 2), (1, 3)),)),)),
            ["seq_lens written", "[1, 2] → [1, 3]"],
        ),
        (
            Observation(accepted=((Emitted(2, (1, 0), 0, 3), Emitted(1, (2,), 2)),)),
            ["request 0 emits", "[1, 0] × 3; [2]"],
        ),
    ],
    ids=["fault", "gate", "error", "written", "emitted"],
)
def test_whatever_an_sglang_showed_has_a_row(observation: Observation, row: list[str]) -> None:
    assert rows(replay_shown(VERIFY, replayed(observation)), "seen") == [row]


def test_the_rounds_of_a_replay_are_numbered() -> None:
    scenario = replace(VERIFY, rounds=(*VERIFY.rounds, *VERIFY.rounds))
    names = [row[0] for row in rows(replay_shown(scenario, replayed(ideal.observation(scenario))), "seen")]
    assert {"round 0 seq_lens_cpu_int", "round 1 seq_lens_cpu_int"} <= set(names)


def test_a_replay_that_could_not_be_judged_says_why() -> None:
    fault = Observation(fault=Fault("crash", "killed"))
    one = Replayed(info(), fault, {CHECKS["kv-lengths"]: unknown("crash: killed [by] chance")})
    text = replay_shown(VERIFY, one)
    assert rows(text, "check") == [["kv-lengths", "unknown"]]
    assert "0.5.18: crash: killed [by] chance\n" in text


@pytest.mark.parametrize("odd", ODD_NAMES)
def test_a_spec_with_brackets_is_shown_as_it_is_in_a_replay(odd: str) -> None:
    assert f"0.5.18 ({odd})" in replay_shown(VERIFY, replayed(ideal.observation(VERIFY), spec=odd))
