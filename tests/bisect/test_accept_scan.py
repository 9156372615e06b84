"""The scan of what releases accept: side by side, kept as it goes, and told in a table."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from harness.bisect import accept_scan as module
from harness.bisect.accept_scan import scan
from harness.campaign import accept_tiny
from harness.campaign.accept_tiny import Played, reference
from harness.errors import CannotJudge, Exit
from harness.parity.acceptance_verdict import Verdict
from harness.report.acceptance_scan import scan_markdown, show_scan
from harness.scenario.metadata import Algorithm, Executor
from harness.subject.source import Source

SOURCES = [Source(f"0.5.{minor}", "release", f"/nonexistent/0.5.{minor}", f"0.5.{minor}") for minor in (17, 18, 19)]
RIGHT = tuple(reference("DFLASH").replies.values())

FakePlay = Callable[[str, Algorithm, Executor], Played]


def ignore(*event: Any) -> None:
    """Progress that nobody looks at."""


def played(release: str, algorithm: Algorithm, executor: Executor, **seen: Any) -> Played:
    """What plain torch does, under the name of a release."""
    header = accept_tiny.not_played(release, algorithm, executor, "").header
    replies = tuple(reference(algorithm).replies.values())
    return Played(header, executor, **({"replies": replies} | seen))


class FakeSupervisor:
    """A subject that is there; `closed` names those that were ended."""

    closed: ClassVar[list[str]] = []

    def __init__(self, source: Source) -> None:
        self.release = source.release

    def __enter__(self) -> "FakeSupervisor":
        return self

    def __exit__(self, *error: object) -> None:
        self.closed.append(self.release)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[list[str], Callable[[FakePlay], None]]:
    """What was asked, each time; and the means to have another answer."""
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path))
    monkeypatch.setattr(FakeSupervisor, "closed", [])
    monkeypatch.setattr(module, "Supervisor", FakeSupervisor)
    asked: list[str] = []

    def install(answer: FakePlay) -> None:
        def play(supervisor: FakeSupervisor, algorithm: Algorithm, executor: Executor) -> Played:
            asked.append(f"{supervisor.release} {algorithm} {executor}")
            return answer(supervisor.release, algorithm, executor)

        monkeypatch.setattr(module, "play", play)

    install(played)
    return asked, install


Asked = tuple[list[str], Callable[[FakePlay], None]]


def test_cells_come_in_the_order_of_releases_algorithms_and_executors(asked: Asked) -> None:
    cells = scan(SOURCES, ["DFLASH", "EAGLE"], ignore, workers=3)

    assert [cell.run.path.name for cell in cells] == [
        f"{source.release} {algorithm} {executor}"
        for source in SOURCES
        for algorithm in ("DFLASH", "EAGLE")
        for executor in ("eager", "graph")
    ]
    assert {cell.verdict for cell in cells} == {Verdict.EQUIVALENT}
    assert sorted(FakeSupervisor.closed) == [source.release for source in SOURCES]


def test_what_was_played_is_kept_and_a_scan_that_ended_early_goes_on(asked: Asked) -> None:
    questions, install = asked

    def ends(release: str, algorithm: Algorithm, executor: Executor) -> Played:
        if executor == "graph":
            raise KeyboardInterrupt
        return played(release, algorithm, executor)

    install(ends)
    with pytest.raises(KeyboardInterrupt):
        scan(SOURCES[:1], ["DFLASH"], ignore)
    install(played)
    first = scan(SOURCES[:1], ["DFLASH"], ignore)

    assert questions == ["0.5.17 DFLASH eager", "0.5.17 DFLASH graph", "0.5.17 DFLASH graph"]
    assert [cell.played for cell in scan(SOURCES[:1], ["DFLASH"], ignore)] == [cell.played for cell in first]
    assert len(questions) == 3
    scan(SOURCES[:1], ["DFLASH"], ignore, anew=True)
    assert len(questions) == 5


def test_a_release_that_is_lost_is_unknown_is_asked_again_and_stops_no_other(asked: Asked) -> None:
    questions, install = asked

    def lost(release: str, algorithm: Algorithm, executor: Executor) -> Played:
        if release == "0.5.18":
            raise CannotJudge("the subject was lost 10 times.")
        return played(release, algorithm, executor)

    install(lost)
    cells = scan(SOURCES, ["DFLASH"], ignore)
    statuses = [cell.exit_status for cell in cells]

    assert statuses == [Exit.PASSED] * 2 + [Exit.UNKNOWN] * 2 + [Exit.PASSED] * 2
    assert "0.5.18 DFLASH eager; 0.5.18 DFLASH graph could not be asked: the subject was lost 10 times." in said(cells)
    del questions[:]
    scan(SOURCES, ["DFLASH"], ignore)
    assert questions == ["0.5.18 DFLASH eager"]


def said(cells: Any) -> str:
    """What the terminal shows."""
    console = Console(file=io.StringIO(), width=200)
    show_scan(console, cells)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_names_what_is_right_what_is_wrong_and_what_ended(asked: Asked) -> None:
    _, install = asked
    worse = tuple(
        accept_tiny.replace(one, tokens=(1, *one.tokens[1:]), verifies=47, correct=0, histogram=(47,)) for one in RIGHT
    )

    def some(release: str, algorithm: Algorithm, executor: Executor) -> Played:
        match release, executor:
            case "0.5.18", "eager":
                return played(release, algorithm, executor, replies=worse)
            case "0.5.18", "graph":
                return played(release, algorithm, executor, replies=RIGHT[:3], error="RuntimeError: ended")
            case "0.5.19", "eager":
                return played(release, algorithm, executor, refusal="device='npu' is not supported")
        return played(release, algorithm, executor)

    install(some)
    cells = scan(SOURCES, ["DFLASH"], ignore)
    table = scan_markdown(cells)

    assert "| 0.5.17 | 4.81 EQUIVALENT | 4.81 EQUIVALENT |\n" in table
    assert "| 0.5.18 | 1.00 NOT LOSSLESS, REGRESSED | 4.77 ENDS |\n" in table
    assert "| 0.5.19 | 4.81 EQUIVALENT, gate lifted | 4.81 EQUIVALENT |\n" in table
    assert "- 0.5.18 DFLASH graph ends: RuntimeError: ended\n" in table
    assert "- 0.5.19 DFLASH eager refuses: device='npu' is not supported\n" in table
    for cell in ("4.81 EQUIVALENT, gate lifted", "1.00 NOT LOSSLESS, REGRESSED", "4.77 ENDS"):
        assert cell in said(cells)
