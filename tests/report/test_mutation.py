"""A mutation study for a reader: the score leaves out what cannot be killed, and the page says what nothing catches."""

import io

import msgspec
from rich.console import Console

from harness.mutate.faults import Caught
from harness.mutate.run import Fate
from harness.mutate.study import Study, Verdict, score
from harness.report.document import encode
from harness.report.mutation import show_study, study_document
from harness.report.power import power_page

KILLED = Fate("killed", ("kv-lengths",), "metadata", 3, 1.5, "seq_lens_cpu_int[0]=2, but should be 1")
SWEPT = Fate("killed", ("block-table",), "sweep", 20, 2.0, "wrong")
SURVIVED, UNREACHED = Fate("survived", scenarios=40), Fate("unreached")


def verdict(drawn: Fate, swept: Fate, argument: str = "", equivalent: bool = False) -> Verdict:
    fates = {"drawn": drawn, "swept": swept}
    return Verdict(
        "a.py:f", "metadata", "arithmetic", 7, "a + b", "a + b -> (a - b)", fates, argument, equivalent, "-a\n+b"
    )


VERDICTS = [
    verdict(KILLED, SURVIVED),
    verdict(SURVIVED, SWEPT),
    verdict(SURVIVED, SURVIVED),
    verdict(SURVIVED, SURVIVED, "it does the same", True),
    verdict(UNREACHED, UNREACHED, "it takes two devices"),
]
STUDY = Study("0.5.23", 0, None, {"metadata": 40}, [], [], 0, 0, ["kv-lengths"], 90.0, 2, VERDICTS)


def test_the_score_is_of_those_that_could_be_killed() -> None:
    assert score(VERDICTS).rate == 2 / 3
    assert score(VERDICTS, "drawn").rate == 1 / 3
    assert score([VERDICTS[3], VERDICTS[4]]).rate is None


def test_what_is_neither_killed_nor_explained_is_unexplained() -> None:
    assert STUDY.unexplained == [VERDICTS[2]]


def test_an_equivalent_that_is_killed_is_refuted() -> None:
    refuted = verdict(KILLED, SURVIVED, "it does the same", True)
    study = msgspec.structs.replace(STUDY, verdicts=[refuted])

    assert study.refuted == [refuted]
    assert "not equivalent: a.py:f:7 arithmetic: a + b -> (a - b) was seen by kv-lengths" in shown(study)


def shown(study: Study) -> str:
    file = io.StringIO()
    show_study(Console(file=file, width=160), study)
    return file.getvalue()


def test_the_terminal_shows_the_score_and_survivors_with_their_diff() -> None:
    text = shown(STUDY)

    assert "66.7 %" in text
    assert "survived a.py:f:7 arithmetic: a + b -> (a - b)\n-a\n+b\n" in text


def test_the_page_says_what_each_arm_finds_and_what_nothing_catches() -> None:
    page = power_page(STUDY)

    assert "| drawn | 1 | 33.3 % | 3 | 1.5 | 1 |" in page
    assert "| both | 2 | 66.7 % |" in page
    assert "* `a.py:f:7 arithmetic: a + b -> (a - b)` survived after 40 scenarios" in page
    assert "* not run, 1 mutants: it takes two devices" in page


def test_the_document_has_its_kind_and_every_mutant() -> None:
    document = msgspec.json.decode(encode(study_document(STUDY)))

    assert (document["kind"], len(document["study"]["verdicts"])) == ("mutation", 5)
    assert document["scores"]["a.py:f"]["killed"] == 2


def test_the_page_says_what_sglang_shows_without_a_mutant() -> None:
    study = msgspec.structs.replace(
        STUDY,
        known=["kv-lengths:a", "kv-lengths:b", "host-view:a"],
        new=["host-view:a"],
        checks=["kv-lengths", "block-table", "host-view"],
        untried=10,
        minutes=5.0,
    )
    page = power_page(study)

    assert "kv-lengths 2, host-view 1 (fingerprints)" in page
    assert "2 of 3 are findings that `cases/regressions` pins." in page
    assert "* not pinned: `host-view:a`" in page
    assert "5 mutants of 15 (in an order of chance)" in page
    assert "--minutes 5" in page


def test_the_page_says_which_checks_neither_a_mutant_nor_a_fault_of_the_catalogue_needs() -> None:
    seen = Caught("planted", "it is wrong", ("A1",), "metadata", "host-view", ("host-view",))
    study = msgspec.structs.replace(STUDY, checks=["kv-lengths", "block-table", "host-view", "builds"], faults=[seen])

    assert "Switched off, 3 of 4 checks would let one of these live.\nNothing here needs `builds`." in power_page(study)
    assert "Switched off" not in power_page(STUDY)


def test_a_page_of_the_catalogue_alone_says_nothing_of_mutants() -> None:
    seen = Caught("planted", "it is wrong", ("A1",), "metadata", "host-view", ("host-view",))
    page = power_page(msgspec.structs.replace(STUDY, scenes={}, verdicts=[], faults=[seen]))

    assert "sglang 0.5.23, 1 faults of the catalogue:" in page
    assert "## Score" not in page
    assert "What nothing catches yet" not in page


def test_a_survivor_that_is_explained_is_on_the_page_and_counts_as_alive() -> None:
    explained = verdict(SURVIVED, SURVIVED, "no check looks there")
    study = msgspec.structs.replace(STUDY, verdicts=[VERDICTS[0], explained])

    assert study.unexplained == []
    assert score(study.verdicts).rate == 1 / 2
    assert "survived after 40 scenarios: no check looks there" in power_page(study)
