"""The benchmarks run, on one turn of the cheap ones: whether they are fast is not for a test to say."""

import json
from pathlib import Path

import pytest

from benchmarks import measures, sanitizer
from harness.subject.source import resolve


def test_small_measures_make_one_table_and_its_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*measures.start_up(resolve("0.5.23"), 1), *sanitizer.overhead(1)]
    measures.show(lines)
    measures.write(lines, tmp_path / "measures.json")

    written = json.loads((tmp_path / "measures.json").read_text())
    assert [line["name"] for line in written] == [line.name for line in lines]
    assert all(line["value"] > 0 for line in written)
    assert "start-up of a subject" in capsys.readouterr().out
