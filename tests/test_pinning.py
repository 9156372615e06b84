"""Bringing pinned cases up to date after a scan of some releases."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from harness.scenario import GateScenario
from harness.scenario.case import SCHEMA, Case, read_case, write_case

FOUND = {
    "fingerprint": "device-gate:DFLASH:supported:refused",
    "check": "device-gate",
    "message": "refused",
    "scenario": {"kind": "gate", "device": "npu"},
}


@pytest.fixture
def pin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`cases/pin.py`, with releases that are judged by their number: 0.5.22 and 0.5.23 are wrong."""
    spec = importlib.util.spec_from_file_location("pin", Path(__file__).parent.parent / "cases" / "pin.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "wrong_in", lambda release, cases: set(cases) if release in ("0.5.22", "0.5.23") else set()
    )
    return module


def scan(folder: Path, *releases: str) -> Path:
    runs = [{"subject": {"release": release}, "findings": [FOUND]} for release in releases]
    (folder / "scan.json").write_text(json.dumps({"runs": runs}))
    return folder / "scan.json"


def test_a_new_fingerprint_becomes_a_case_with_the_releases_in_which_it_is_wrong(
    pin: ModuleType, tmp_path: Path
) -> None:
    pin.main(scan(tmp_path, "0.5.21", "0.5.22", "0.5.23"), tmp_path / "cases")
    case = read_case(tmp_path / "cases" / "device-gate-DFLASH-supported-refused.json")

    assert case.scenario == GateScenario("npu")
    assert case.wrong_in == ("0.5.22", "0.5.23")


def test_releases_that_were_not_scanned_stay_as_they_were_noted(pin: ModuleType, tmp_path: Path) -> None:
    known = Case(SCHEMA, GateScenario("npu"), "device-gate", FOUND["fingerprint"], wrong_in=("0.5.9", "0.5.23"))
    write_case(tmp_path / "cases" / "known.json", known)
    pin.main(scan(tmp_path, "0.5.21", "0.5.22"), tmp_path / "cases")

    assert read_case(tmp_path / "cases" / "known.json").wrong_in == ("0.5.9", "0.5.22", "0.5.23")
