"""The judgements: a valid data file, and the first entry that matches."""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase, translate
from importlib.resources import files

import msgspec
import pytest

from harness.checks.registry import CHECKS
from harness.report import judgement as module
from harness.report.judgement import ORDER, UNJUDGED, Judgement, judge, judgements

ENTRIES = judgements()


def test_the_data_file_is_a_list_of_judgements() -> None:
    data = files("harness.report").joinpath("judgements.json").read_bytes()
    assert msgspec.json.decode(data, type=tuple[Judgement, ...], strict=True) == ENTRIES


def test_every_entry_says_which_fingerprints_and_why() -> None:
    assert [entry for entry in ENTRIES if not entry.fingerprints or not entry.why.strip()] == []


def test_every_kind_has_its_place_in_the_order() -> None:
    assert {entry.kind for entry in ENTRIES} <= set(ORDER)


def test_no_entry_says_that_nobody_has_judged() -> None:
    assert [entry for entry in ENTRIES if entry.kind == "unjudged"] == []


def test_every_pattern_compiles() -> None:
    for entry in ENTRIES:
        for pattern in entry.fingerprints:
            re.compile(translate(pattern))


def test_every_pattern_begins_with_a_check() -> None:
    patterns = [pattern for entry in ENTRIES for pattern in entry.fingerprints]
    assert [pattern for pattern in patterns if pattern.split(":")[0] not in CHECKS] == []


def test_no_pattern_stands_twice() -> None:
    patterns = [pattern for entry in ENTRIES for pattern in entry.fingerprints]
    assert len(patterns) == len(set(patterns))


def test_no_entry_is_hidden_by_an_earlier_one() -> None:
    earlier: list[str] = []
    hidden = []
    for entry in ENTRIES:
        hidden += [one for one in entry.fingerprints if any(fnmatchcase(one, pattern) for pattern in earlier)]
        earlier += entry.fingerprints
    assert hidden == []


def test_every_report_names_a_project_and_a_number() -> None:
    reports = [report for entry in ENTRIES for report in entry.reports]
    assert [report for report in reports if not re.fullmatch(r"[\w./-]+#\d+", report)] == []


NARROW = Judgement("harmless", ("kv-lengths:seq_lens:EAGLE:*", "other:*"), "narrow")
WIDE = Judgement("fault", ("kv-lengths:*",), "wide", ("sglang#1",))


@pytest.mark.parametrize(
    ("entries", "fingerprint", "expected"),
    [
        ((NARROW, WIDE), "kv-lengths:seq_lens:EAGLE:graph", NARROW),
        ((WIDE, NARROW), "kv-lengths:seq_lens:EAGLE:graph", WIDE),
        ((NARROW, WIDE), "kv-lengths:seq_lens:DFLASH:graph", WIDE),
        ((NARROW, WIDE), "other:thing", NARROW),
        ((NARROW, WIDE), "KV-LENGTHS:seq_lens", UNJUDGED),
        ((NARROW, WIDE), "", UNJUDGED),
        ((), "kv-lengths:seq_lens:EAGLE:graph", UNJUDGED),
    ],
)
def test_the_first_entry_that_matches_counts(
    entries: Sequence[Judgement], fingerprint: str, expected: Judgement, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "judgements", lambda: entries)
    assert judge(fingerprint) == expected


def test_what_nobody_has_judged_weighs_more_than_what_needs_an_option() -> None:
    assert ORDER.index("fault") < ORDER.index("unjudged") < ORDER.index("opt-in") < ORDER.index("harmless")
