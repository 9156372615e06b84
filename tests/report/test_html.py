"""The HTML report: the verdict stands first, nothing is lost or trusted, and nothing is fetched."""

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from harness.bisect.transitions import transitions
from harness.errors import UsageError
from harness.parity.acceptance_comparison import compare
from harness.parity.document import ComparisonDocument, Divergence, Errors, ScenarioComparison
from harness.parity.history import Night
from harness.report.document import Document, HistoryDocument, encode, read_document
from harness.report.html import html
from harness.report.json import run_document, scan_document
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
DOCUMENTS = {
    "right": RIGHT,
    "wrong": WRONG,
    "unsure": UNSURE,
    "scan": SCAN,
    "history": HISTORY,
    "same": SAME,
    "dropped": DROPPED,
    "compared": COMPARED,
}


#: Elements that have no end.
EMPTY = {"meta", "input", "wbr", "br", "img"}

WORDS = ("RIGHT", "WRONG", "UNKNOWN", "WRONG", "HISTORY", "EQUIVALENT", "REGRESSED", "DIFFERENT")


class Page(HTMLParser):
    """What a browser would make of a page: its text, its elements, and what it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.words += " " if tag == "td" else ""
        if tag not in EMPTY:
            self.open.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href") and value and value[0] != "#"]

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


def test_nothing_is_fetched() -> None:
    text = html(DOCUMENTS)
    assert Page(text).fetched == []
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
