"""Pin what a scan found: `harness scan --fresh --json scan.json && python cases/pin.py scan.json`.

Writes a case for each fingerprint that has none yet to `cases/regressions/`, then runs every case on every release of
the scan and brings its `wrong_in` up to date. Scenario, note and reports of a case that is there already stay.
"""

import json
import re
import sys
from pathlib import Path

import msgspec
from packaging.version import Version

from harness.campaign.tally import Tally
from harness.campaign.trial import Trial
from harness.checks.registry import CHECKS
from harness.report.judgement import judge
from harness.scenario import Scenario
from harness.scenario.capability import missing
from harness.scenario.case import SCHEMA, Case, write_case
from harness.scenario.pinned import FOLDER, pinned_cases
from harness.subject.source import resolve
from harness.subject.supervisor import Supervisor


def add_new(scan: dict, folder: Path = FOLDER) -> list[str]:
    """Write a case for every fingerprint of `scan` that no case has; returns their names."""
    found: dict[str, list[dict]] = {}
    for run in scan["runs"]:
        for finding in run["findings"]:
            found.setdefault(finding["fingerprint"], []).append(finding)
    known = {case.fingerprint for case in pinned_cases(folder).values()}
    new = {}
    for fingerprint in found.keys() - known:
        finding = min(found[fingerprint], key=lambda one: len(json.dumps(one["scenario"])))
        new[re.sub(r"[^A-Za-z0-9._-]+", "-", fingerprint)] = Case(
            schema=SCHEMA,
            scenario=msgspec.convert(finding["scenario"], type=Scenario),
            check=finding["check"],
            fingerprint=fingerprint,
            note=finding["message"],
            reports=judge(fingerprint).reports,
        )
    for name, case in new.items():
        write_case(folder / f"{name}.json", case)
    return sorted(new)


def wrong_in(release: str, cases: dict[str, Case]) -> set[str]:
    """The names of the cases that are wrong in `release`, of those that it has what it takes for."""
    with Supervisor(resolve(release)) as supervisor:
        trial = Trial(supervisor.observe, list(CHECKS.values()), Tally(list(CHECKS)))
        return {
            name
            for name, case in cases.items()
            if not missing(case.scenario, supervisor.info.capabilities)
            and case.shows_in({finding.fingerprint for finding in trial.judge(case.scenario, only=case.check)})
        }


def main(scan_file: Path, folder: Path = FOLDER) -> None:
    """Add what is new, and bring every case up to date; releases that were not scanned stay as they were noted."""
    scan = json.loads(scan_file.read_text())
    for name in add_new(scan, folder):
        print(f"new: {name}")
    cases = pinned_cases(folder)
    releases = [run["subject"]["release"] for run in scan["runs"]]
    wrong = {release: wrong_in(release, cases) for release in releases}
    for name, case in cases.items():
        others = [release for release in case.wrong_in if release not in releases]
        now = tuple(sorted((*others, *(release for release in releases if name in wrong[release])), key=Version))
        if now != case.wrong_in:
            print(f"{name}: wrong in {', '.join(now) or 'none'}, was {', '.join(case.wrong_in) or 'none'}")
            write_case(folder / f"{name}.json", msgspec.structs.replace(case, wrong_in=now))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
