"""The pinned scenarios of `cases/regressions`: what was found once, and in which releases."""

from pathlib import Path

import harness
from harness.scenario.case import Case, read_case

#: Beside the package in a clone; an installed wheel has no cases, and then there are none.
FOLDER = Path(harness.__file__).parent.parent / "cases" / "regressions"


def pinned_cases(folder: Path = FOLDER) -> dict[str, Case]:
    """Every case of `folder` by file name; raises UsageError for a file that is none."""
    return {path.stem: read_case(path) for path in sorted(folder.glob("*.json"))}


def known_in(releases: set[str], cases: dict[str, Case]) -> set[str]:
    """Fingerprints that are known to be wrong in any of `releases`."""
    return {case.fingerprint for case in cases.values() if releases & set(case.wrong_in)}
