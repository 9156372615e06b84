"""JUnit XML for CI: one test case per check, a failure per finding, an error for what could not be judged."""

import re
from xml.etree import ElementTree

from harness.campaign.run import Run
from harness.checks.registry import CHECKS
from harness.report.replay import command
from harness.report.terminal import losses


def junit(run: Run) -> bytes:
    """`run` as one test suite; every check is a case, and a lost subject is a case of its own."""
    suite = ElementTree.Element("testsuite", name=f"harness sglang {run.subject.release or run.subject.spec}")
    names = [*run.checks, *(key for key in run.unknown if key not in run.checks)]
    failures = errors = 0
    for check_id in names:
        group = CHECKS[check_id].group if check_id in CHECKS else "subject"
        case = ElementTree.SubElement(suite, "testcase", classname=f"harness.{group}", name=check_id)
        for finding in run.findings:
            if finding.check == check_id:
                failure = ElementTree.SubElement(case, "failure", type=finding.fingerprint, message=finding.message)
                failure.text = f"{finding.message}\n{finding.meaning}\n{command(run, finding)}"
                failures += 1
        if check_id in run.unknown:
            ElementTree.SubElement(case, "error", type="UNKNOWN", message=run.unknown[check_id])
            errors += 1
    suite.set("tests", str(len(names)))
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    ElementTree.indent(suite)
    if run.losses.unreproduced:
        ElementTree.SubElement(suite, "system-out").text = "\n".join(losses(run))
    for element in suite.iter():
        element.text = element.text and _speakable(element.text)
        element.attrib.update({key: _speakable(value) for key, value in element.attrib.items()})
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text


def _speakable(text: str) -> str:
    """`text` with the control characters that XML cannot hold written out."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", lambda match: repr(match.group())[1:-1], text)
