"""The HTML report: the verdict stands first, nothing is lost or trusted, and nothing is fetched."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from harness.bisect.answer import Answer, Hunk
from harness.bisect.bisection import Change, Ends
from harness.bisect.decision import Decision
from harness.bisect.revisions import Revision
from harness.bisect.sequential import CERTAIN
from harness.bisect.transitions import transitions
from harness.commands.history import history as add_to_history
from harness.errors import UsageError
from harness.mutate.faults import Caught
from harness.mutate.run import Fate
from harness.mutate.study import Study
from harness.mutate.study import Verdict as MutantVerdict
from harness.parity.acceptance_comparison import compare
from harness.parity.document import ComparisonDocument, Divergence, Errors, ScenarioComparison
from harness.parity.history import Night
from harness.report.bisection import document as bisection_document
from harness.report.document import Document, HistoryDocument, encode, read_document
from harness.report.html import html
from harness.report.json import run_document, scan_document
from harness.report.mutation import study_document
from harness.scenario.case import Case
from tests.parity.made_runs import alike, records
from tests.parity.made_runs import run as acceptance_run
from tests.runs import BLOCK_TWICE, REFUSED, info, made_run

RIGHT = run_document(made_run())
WRONG = run_document(made_run(BLOCK_TWICE, REFUSED))
UNSURE = run_document(made_run(unknown={"window-mask": "it never ran"}))
RUNS = [made_run(subject=info("0.5.17")), made_run(BLOCK_TWICE), made_run(subject=info("0.5.20"))]
SCAN = scan_document(RUNS, transitions(RUNS))
FIRST = datetime(2026, 9, 1, tzinfo=UTC)
HISTORY = HistoryDocument(
    1,
    tuple(Night(1, FIRST + timedelta(n), "<910B>", n < 10, {"length": 4.8 if n < 10 else 1.9}) for n in range(20)),
)
ANSWERS = alike()
FEWER = alike((6, 1, 1, 2))
SAME = compare(acceptance_run(records(ANSWERS)), acceptance_run(records(ANSWERS), name="again.jsonl"))
DROPPED = compare(acceptance_run(records(ANSWERS)), acceptance_run(records(FEWER), name="other.jsonl"))
ERRORS = Errors(640, 1e-8, 3e-8, 1e-6, 1e-7, 0.9, 2e-7)
PATH = "DFLASH target_verify eager mha"
DIVERGENCE = Divergence(1, PATH, 0, "output", 1e-8, 0.4, 0.0, layer="full", row=3, message="<b>")
COMPARED = ComparisonDocument(
    1,
    info("0.5.18"),
    info("0.5.18", device="triton-interpreter"),
    "DIFFERENT",
    {"EQUAL": 0, "WITHIN NOISE": 1, "DIFFERENT": 1, "UNKNOWN": 1},
    (ERRORS, msgspec.structs.replace(ERRORS, rms=0.1, largest=0.4)),
    {"rms": 1e7, "largest": 1.3e7, "largest_relative": 1.0, "mean_relative": 1.0},
    DIVERGENCE,
    (
        ScenarioComparison(0, "NONE decode eager mha", 40, "WITHIN NOISE", largest=(1e-8, 0.0)),
        ScenarioComparison(1, PATH, 4_000, "DIFFERENT", largest=(1e-8, 0.4)),
        ScenarioComparison(2, PATH, 7, "UNKNOWN", "b has no windows"),
    ),
)
GOOD = Decision("good", 1, 0, values="seq_lens_cpu_int=[129]")
BAD = Decision("bad", 10, 10, BLOCK_TWICE.message, "seq_lens_cpu_int=[133]", others=(REFUSED.fingerprint,))
HUNK = Hunk("sglang/a.py", "Backend.<init>", 300, ("-lengths = committed", "+lengths = committed + block"), 1)
COMMITS = tuple(Revision(f"git:clone@{name}", name, f"2026-07-01 Add (#{name})") for name in ("41", "42", "43"))
ANSWER = Answer(
    Case(1, BLOCK_TWICE.scenario, "kv-lengths", BLOCK_TWICE.fingerprint),
    "case.json",
    "0.5.17",
    "0.5.18",
    False,
    Ends(GOOD, BAD),
    CERTAIN,
    Change(Revision("0.5.17", "0.5.17"), Revision("0.5.18", "0.5.18"), GOOD, BAD),
    Change(COMMITS[0], COMMITS[1], GOOD, BAD, judged=5),
    (HUNK, msgspec.structs.replace(HUNK, function="second")),
    7,
)
RANGE = msgspec.structs.replace(ANSWER, commit=Change(COMMITS[0], COMMITS[2], GOOD, BAD, (COMMITS[1],), 5))
FIXED = msgspec.structs.replace(ANSWER, fixed=True)
BISECTED = bisection_document([ANSWER])
SURVIVOR = MutantVerdict(
    "a.py:f",
    "metadata",
    "arithmetic",
    7,
    "a",
    "a -> (a < b)",
    {"drawn": Fate("survived", scenarios=40)},
    diff="-a\n+a < b",
)
KILLED = msgspec.structs.replace(SURVIVOR, fates={"drawn": Fate("killed", ("kv-lengths",), "metadata", 3)})
STUDY = Study("0.5.23", 0, None, {"metadata": 40}, [], [], 0, 0, ["kv-lengths"], 90.0, 2, [KILLED, SURVIVOR])
CAUGHT = Caught(
    "block-added-twice", "adds the block twice", ("sglang#31739",), "metadata", "kv-lengths", ("kv-lengths",)
)
DOCUMENTS = {
    "right": RIGHT,
    "wrong": WRONG,
    "unsure": UNSURE,
    "scan": SCAN,
    "history": HISTORY,
    "same": SAME,
    "dropped": DROPPED,
    "compared": COMPARED,
    "bisected": BISECTED,
    "mutated": study_document(STUDY),
}


#: Elements that have no end.
EMPTY = {"meta", "input", "wbr", "br", "img"}

WORDS = ("RIGHT", "WRONG", "UNKNOWN", "WRONG", "HISTORY", "EQUIVALENT", "REGRESSED", "DIFFERENT", "BROKEN", "GAPS")


class Page(HTMLParser):
    """What a browser would make of a page: its text, its elements, where it leads, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.words += " " if tag == "td" else ""
        if tag not in EMPTY:
            self.open.append(tag)
        addresses = [value for name, value in attrs if name in ("src", "srcset", "href") and value and value[0] != "#"]
        (self.links if tag == "a" else self.fetched).extend(addresses)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def page(**documents: Document) -> Page:
    return Page(html(documents))


def test_the_verdict_is_the_first_thing_in_the_body() -> None:
    text = html({"run": WRONG})
    assert Page(text[text.index("<body>") :]).text.startswith("WRONG sglang 0.5.18: 2 findings (")


@pytest.mark.parametrize(
    ("document", "word"),
    list(zip(DOCUMENTS.values(), WORDS, strict=True)),
    ids=DOCUMENTS,
)
def test_each_document_has_its_verdict(document: Document, word: str) -> None:
    assert f"<h1>{word}</h1>" in html({"it": document})


def test_of_several_documents_the_gravest_verdict_counts_and_each_is_told() -> None:
    text = html({"a": RIGHT, "b": UNSURE, "c": WRONG})
    assert "<h1>WRONG</h1>" in text
    assert [text.count(f'<section id="{number}">') for number in (1, 2, 3)] == [1, 1, 1]
    assert "<h1>UNKNOWN</h1>" in html({"a": RIGHT, "b": UNSURE})


def test_a_finding_tells_what_it_is_what_it_means_and_how_to_see_it_again() -> None:
    text = page(run=WRONG).text
    for finding in WRONG.findings:
        for words in (finding.message, finding.meaning, finding.judgement.why, finding.fingerprint, finding.replay):
            assert words in text


def test_a_scan_shows_each_finding_along_the_releases_and_where_it_changed() -> None:
    text = page(scan=SCAN).text
    assert f"{BLOCK_TWICE.fingerprint} · ✗ ·" in text
    assert f"broken 0.5.17 → 0.5.18: {BLOCK_TWICE.fingerprint}" in text
    assert f"fixed 0.5.18 → 0.5.20: {BLOCK_TWICE.fingerprint}" in text


def test_a_change_leads_to_what_lies_between_the_two_tags() -> None:
    compared = [change.compare for change in SCAN.transitions]
    assert page(scan=SCAN).links == compared
    assert compared[0].endswith("/compare/v0.5.17...v0.5.18")


def test_a_bisection_tells_the_first_wrong_the_evidence_at_both_ends_the_hunks_and_the_replay() -> None:
    shown = page(bisected=BISECTED)
    assert "BROKEN 1 finding, first wrong: 42 2026-07-01 Add (#42)." in shown.text
    for words in (
        f"fault {BLOCK_TWICE.fingerprint}",
        "good41: seq_lens_cpu_int=[129]",
        f"bad42: {BLOCK_TWICE.message}; seq_lens_cpu_int=[133]",
        f"{REFUSED.fingerprint}, not counted",
        "9 sglangs judged, one run each: at the bad end 10 of 10 runs showed it",
        "The likely hunk: Backend.<init> in sglang/a.py:300 -lengths = committed +lengths = committed + block",
        "Or: second in",
        "7 functions that the scenario runs through have changed",
        "harness replay case.json --sglang git:clone@41 --sglang git:clone@42",
    ):
        assert words in shown.text
    repository = "https://github.com/sgl-project/sglang"
    assert shown.links == [f"{repository}/pull/42", f"{repository}/compare/v0.5.17...v0.5.18"]


@pytest.mark.parametrize(
    ("answers", "gravity", "words"),
    [
        (
            [RANGE],
            "bad",
            "BROKEN 1 finding, first wrong: one of 42 2026-07-01 Add (#42), 43 2026-07-01 Add (#43); all but",
        ),
        ([ANSWER, ANSWER], "bad", "BROKEN 2 findings, first wrong: 42 2026-07-01 Add (#42)."),
        ([FIXED], "good", "FIXED 1 finding, first right: 42 2026-07-01 Add (#42)."),
        ([msgspec.structs.replace(RANGE, fixed=True)], "unsure", "FIXED 1 finding, first right: one of 42"),
        ([], "unsure", "UNKNOWN nothing was searched for."),
    ],
    ids=["a range", "two of one commit", "a fix", "a range of fixes", "none"],
)
def test_the_verdict_of_a_bisection(answers: list[Answer], gravity: str, words: str) -> None:
    text = html({"it": bisection_document(answers)})
    assert f'<header class="verdict {gravity}">' in text
    assert words in Page(text).text


def test_a_mutation_study_shows_the_score_and_survivors_with_their_diff() -> None:
    text = page(mutated=study_document(STUDY)).text
    assert "GAPS sglang 0.5.23: 1 of 2 mutants killed (50.0 %), 1 killed by nothing." in text
    assert "a.py:f 2 1 0 0 50.0 %" in text
    assert "survived: a.py:f:7 arithmetic: a -> (a < b) -a +a < b" in text


def test_a_study_that_lets_nothing_through_is_good_and_a_refuted_argument_or_a_missed_fault_is_not() -> None:
    sound = msgspec.structs.replace(STUDY, verdicts=[KILLED], faults=[CAUGHT])
    refuted = msgspec.structs.replace(STUDY, verdicts=[msgspec.structs.replace(KILLED, argument="no", equivalent=True)])
    missed = msgspec.structs.replace(STUDY, verdicts=[], faults=[msgspec.structs.replace(CAUGHT, by=())])

    studies = {"sound": sound, "refuted": refuted, "missed": missed}
    shown = {name: html({name: study_document(one)}) for name, one in studies.items()}
    assert ["bad" if 'verdict bad"' in text else "good" for text in shown.values()] == ["good", "bad", "bad"]
    assert "was seen by kv-lengths; no" in shown["refuted"]
    assert "not by kv-lengths" in shown["missed"]


def test_what_could_not_be_judged_is_told() -> None:
    assert "UNKNOWN window-mask: it never ran" in page(run=UNSURE).text


def test_a_history_is_drawn_in_the_colours_of_the_page_and_tells_its_steps() -> None:
    text = html({"history": HISTORY})
    assert "Step before 2026-09-11: 4.8 → 1.9 (p = " in Page(text).text
    assert "No night since the last step has passed: there is no baseline." in Page(text).text
    assert text.count("<svg") == 1
    assert "fill: var(--ink)" in text
    assert "#00000" not in text


def test_an_acceptance_comparison_has_its_numbers_and_three_plots_for_each_rung() -> None:
    text = html({"dropped": DROPPED})
    (rung,) = DROPPED.rungs
    for side in (rung.reference, rung.candidate):
        assert f"{side.length:.3f} ({side.per_request:.3f})" in Page(text).text
    assert text.count("<svg") == 3
    for words in ("accepted where reached", "reference, tokens of a verify", "drop of 5% found"):
        assert words in text


def test_a_comparison_names_the_first_divergence_and_draws_errors_beside_the_noise() -> None:
    text = html({"compared": COMPARED})
    told = Page(text).text
    assert "scenario 1 (DFLASH target_verify eager mha), step 0, layer full, row 3: <b>" in told
    assert "rms 1e-08 0.1 1e+07" in told
    assert "DFLASH target_verify eager mha 1 1" in told
    assert "UNKNOWN 1 times: b has no windows" in told
    assert text.count("<svg") == 1
    for words in ("largest error against float64", "noise of a", "different"):
        assert words in text


def test_text_of_a_subject_stays_text() -> None:
    hostile = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    finding = msgspec.structs.replace(BLOCK_TWICE, message=hostile, meaning=hostile)
    shown = page(run=run_document(made_run(finding, subject=info(spec=hostile), unknown={hostile: hostile})))

    assert shown.tags.count("script") == 1
    assert "img" not in shown.tags
    assert hostile in shown.text

    hunk = msgspec.structs.replace(HUNK, lines=(hostile,))
    bisected = page(it=bisection_document([msgspec.structs.replace(ANSWER, path=hostile, hunks=(hunk,))]))
    assert (bisected.tags.count("script"), bisected.tags.count("img")) == (1, 0)
    assert hostile in bisected.text


def test_nothing_is_fetched() -> None:
    text = html(DOCUMENTS)
    assert Page(text).fetched == []
    assert {"link", "iframe", "object", "embed"}.isdisjoint(Page(text).tags)
    assert re.findall(r"url\((?!#)", text) == []
    assert "@import" not in text


def test_ten_thousand_findings_are_all_there_and_can_be_filtered() -> None:
    findings = [msgspec.structs.replace(BLOCK_TWICE, message=f"message {n}.") for n in range(10_000)]
    text = html({"run": run_document(made_run(*findings))})

    assert text.count("<details>") == 10_000
    assert all(f"message {n}." in text for n in (0, 5_000, 9_999))
    assert '<input type="search"' in text
    assert len(text) < 12_000_000


def test_a_short_list_needs_no_filter() -> None:
    assert "<input" not in html({"run": WRONG})


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_is_read_as_it_was_written(document: Document, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_bytes(encode(document))
    assert read_document(tmp_path / "it.json") == document


@pytest.mark.parametrize("name", ["history", "bisected", "mutated"])
def test_a_history_refuses_a_document_that_is_no_result_of_checks(name: str, tmp_path: Path) -> None:
    document = DOCUMENTS[name]
    (tmp_path / "it.json").write_bytes(encode(document))
    tag = document.__struct_config__.tag
    with pytest.raises(UsageError, match=rf"it\.json is a {tag}, and no result that a history could hold\."):
        add_to_history(tmp_path / "history", [tmp_path / "it.json"], "", None)
    assert not (tmp_path / "history").exists()


NEWER = b'{"kind": "run", "schema": 2, "all": "new"}'
REFUSALS = {
    "no JSON": (b"not JSON", "is no document of the harness"),
    "half of it": (encode(WRONG)[:-20], "is no document of the harness"),
    "of another kind": (b'{"kind": "walk", "schema": 1}', "Invalid value 'walk'"),
    "of a newer schema": (NEWER, "has schema 2; this harness reads up to 1: use a newer one."),
    "with a field missing": (b'{"kind": "run", "schema": 1}', "missing required field"),
}


@pytest.mark.parametrize(("data", "words"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_no_document_is_refused_in_a_sentence(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "it.json").write_bytes(data)
    with pytest.raises(UsageError, match="it") as refused:
        read_document(tmp_path / "it.json")
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*it\.json: No such file or directory\."):
        read_document(tmp_path / "it.json")
