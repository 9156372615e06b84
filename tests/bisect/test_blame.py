"""What of a change is blamed: the hunks of functions that a scenario runs through, the likeliest first."""

from pathlib import Path

import pytest

from harness.bisect.blame import Executed, between
from harness.subject.tracing import Tracer

OLDER = """class Backend:
    def build(self, batch):
        self.seq_lens_cpu_int = batch.seq_lens_cpu
        return self

    def never_called(self):
        return 1


def width(batch):
    # a comment
    return max(batch.seq_lens)
"""
NAMES = ["seq_lens_cpu_int", "seq_lens_cpu", "seq_lens"]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """The folders of an older and of a newer version."""
    for name in ("older", "newer"):
        (tmp_path / name).mkdir()
    return tmp_path / "older", tmp_path / "newer"


def lines(text: str) -> Executed:
    """Every line of the file ran but for the body of `never_called`."""
    return {"a.py": tuple(number for number, line in enumerate(text.splitlines(), 1) if "return 1" not in line)}


def blamed(folders: tuple[Path, Path], newer: str, older: str = OLDER) -> list[tuple[str, int]]:
    """The functions of the hunks, each with its first line."""
    for folder, text in zip(folders, (older, newer), strict=True):
        (folder / "a.py").write_text(text)
    found = between(folders[0], lines(older), folders[1], lines(newer), NAMES)
    return [(hunk.function, hunk.start) for hunk in found.hunks]


def test_nothing_is_blamed_where_nothing_has_changed(folders: tuple[Path, Path]) -> None:
    assert blamed(folders, OLDER) == []


def test_a_changed_line_that_ran_is_blamed(folders: tuple[Path, Path]) -> None:
    assert blamed(folders, OLDER.replace("max(", "min(")) == [("width", 10)]


def test_comments_and_layout_are_no_change(folders: tuple[Path, Path]) -> None:
    assert blamed(folders, "\n\n" + OLDER.replace("# a comment", "# another comment")) == []


def test_what_never_ran_is_not_blamed(folders: tuple[Path, Path]) -> None:
    assert (
        blamed(folders, OLDER.replace("return 1", "return 1  \n        return 2").replace("return 2", "return 1")) == []
    )


def test_what_assigns_to_the_wrong_field_is_the_likeliest(folders: tuple[Path, Path]) -> None:
    newer = OLDER.replace("max(batch.seq_lens)", "max(batch.seq_lens) + 1").replace(
        "= batch.seq_lens_cpu\n", "= batch.seq_lens_cpu + 16\n"
    )
    assert blamed(folders, newer) == [("Backend.build", 2), ("width", 10)]
    assert blamed(folders, OLDER, newer) == [("Backend.build", 2), ("width", 10)]


def test_a_condition_over_what_assigns_to_the_wrong_field_is_as_likely(folders: tuple[Path, Path]) -> None:
    older = OLDER.replace(
        "        return self\n",
        "        if batch.verify:\n            self.seq_lens_cpu_int += 16\n        return self\n",
    )
    newer = older.replace("max(batch.seq_lens)", "max(batch.seq_lens_cpu)")
    guarded = newer.replace("batch.verify:", "batch.verify and not batch.dflash:")
    assert blamed(folders, newer, older) == [("width", 12)]
    assert blamed(folders, guarded, older) == [("Backend.build", 2), ("width", 12)]
    assert blamed(folders, newer.replace("batch.seq_lens_cpu\n", "0\n"), guarded)[0] == ("Backend.build", 2)


def test_where_no_changed_line_names_the_field_its_files_come_first(folders: tuple[Path, Path]) -> None:
    other = "def setup(options):\n    return {}\n"
    for folder, text, value in zip(folders, (OLDER, OLDER.replace("return self", "return None")), (1, 2), strict=True):
        (folder / "a.py").write_text(text)
        (folder / "Setup.py").write_text(other.format(value))
    ran = lines(OLDER) | {"Setup.py": (1, 2)}
    hunks = between(folders[0], ran, folders[1], ran, NAMES).hunks

    assert [hunk.file for hunk in hunks] == ["a.py", "Setup.py"]


def test_a_function_that_came_or_went_is_blamed_and_shown_where_it_names_the_field(
    folders: tuple[Path, Path],
) -> None:
    filler = "".join(f"    step{number} = {number}\n" for number in range(60))
    newer = f"{OLDER}\n\ndef publish(batch):\n{filler}    batch.seq_lens_cpu = batch.planned\n{filler}"
    for folder, text in zip(folders, (OLDER, newer), strict=True):
        (folder / "a.py").write_text(text)
    (hunk,) = between(folders[0], lines(OLDER), folders[1], lines(newer), NAMES).hunks

    assert hunk.function == "publish"
    assert "+    batch.seq_lens_cpu = batch.planned" in hunk.lines
    assert len(hunk.lines) == 7
    assert newer.splitlines()[hunk.start - 1] == hunk.lines[0][1:]


def test_a_long_hunk_is_shown_around_its_likeliest_lines_with_a_mark_for_each_gap(folders: tuple[Path, Path]) -> None:
    filler = "".join(f"    step{number} = {number}\n" for number in range(60))
    named = "    batch.seq_lens_cpu = batch.planned\n"
    newer = f"{OLDER}\n\ndef publish(batch):\n{filler}{named}{filler}{named}"
    for folder, text in zip(folders, (OLDER, newer), strict=True):
        (folder / "a.py").write_text(text)
    (hunk,) = between(folders[0], lines(OLDER), folders[1], lines(newer), NAMES).hunks

    assert [place for place, line in enumerate(hunk.lines) if line == "…"] == [7]
    assert len(hunk.lines) == 7 + 1 + 4


def test_a_file_that_is_gone_or_cannot_be_parsed_is_blamed_for_nothing_else(folders: tuple[Path, Path]) -> None:
    assert blamed(folders, "this is a merge conflict\n") == [("Backend.build", 1), ("width", 1)]


def test_lines_that_run_are_traced_in_files_below_the_folder_alone(tmp_path: Path) -> None:
    inside, outside = tmp_path / "sglang" / "inside.py", tmp_path / "outside.py"
    inside.parent.mkdir()
    for file in (inside, outside):
        file.write_text("def f(x):\n    if x:\n        return 1\n    return 2\n")
    functions = []
    for file in (inside, outside):
        scope: dict[str, object] = {}
        exec(compile(file.read_text(), file, "exec"), scope)
        functions.append(scope["f"])
    with Tracer(str(inside.parent)) as tracer:
        for function in functions:
            assert callable(function)
            function(1)

    assert tracer.executed == {"inside.py": (2, 3)}
