"""`docs/assumptions.md` lists the assumptions that the comments of `harness/npu` state."""

from pathlib import Path

import pytest

from harness.inventory.assumptions import FOLDER, Assumption, assumptions, page

_DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_page_is_the_computed_one() -> None:
    assert (_DOCS / "assumptions.md").read_text(encoding="utf-8") == page(), "run `python -m harness.inventory`"


def test_no_assumption_is_overlooked() -> None:
    written = sum(file.read_text(encoding="utf-8").count("Assumption:") for file in FOLDER.glob("*.py"))
    assert written == len(assumptions()) > 0


_CODE = '''"""A module. Assumption: of the module."""

# Not one.
# Assumption: of no function,
# on two lines. Source: torch_npu 1.0. On a device: count
# its cores.
WIDTH = 1


class Thing:
    """A class.

    Assumption: of the class,
    in a paragraph.

    Not one.
    """

    def method(self) -> str:
        # Assumption: the first.
        # Assumption: the second. On a device: look.
        return "Assumption of nothing"
'''


def test_an_assumption_is_read_from_comments_and_docstrings_with_its_place_and_parts(tmp_path: Path) -> None:
    (tmp_path / "thing.py").write_text(_CODE, encoding="utf-8")
    assert assumptions(tmp_path) == [
        Assumption("thing.py", "", "of the module.", "", ""),
        Assumption("thing.py", "", "of no function, on two lines.", "torch_npu 1.0.", "count its cores."),
        Assumption("thing.py", "Thing", "of the class, in a paragraph.", "", ""),
        Assumption("thing.py", "Thing.method", "the first.", "", ""),
        Assumption("thing.py", "Thing.method", "the second.", "", "look."),
    ]


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing.py").write_text("# Assumption: x | y.\n", encoding="utf-8")
    found = assumptions(tmp_path)
    monkeypatch.setattr("harness.inventory.assumptions.assumptions", lambda: found)
    assert "| `thing.py` | x &#124; y. | none yet | not said yet |" in page()
