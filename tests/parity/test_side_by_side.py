"""Two subjects side by side, one behind another command: a connection that is cut is a Fault and no hang."""

import sys
from pathlib import Path

import pytest

from harness.parity.comparison import Comparison
from harness.subject.source import Source
from harness.subject.supervisor import Supervisor
from tests.parity.sides import SCENARIOS
from tests.subject.fake_subject import COMMAND

#: Stands in for ssh: hands stdin and stdout through to the command that follows, up to so many bytes of answers.
WRAPPER = """
import subprocess, sys, threading
most = int(sys.argv[1])
subject = subprocess.Popen(sys.argv[2:], stdin=sys.stdin.buffer, stdout=subprocess.PIPE)
while most > 0:
    data = subject.stdout.read1(min(most, 4096))
    if not data:
        break
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    most -= len(data)
subject.kill()
subject.wait()
"""
SOURCE = Source("fake", "release", "", "0.0.1")


def behind(wrapper: Path, most: int) -> Supervisor:
    wrapper.write_text(WRAPPER)
    return Supervisor(
        SOURCE, command=(sys.executable, str(wrapper), str(most), *COMMAND), pending=wrapper.parent / "asked"
    )


@pytest.fixture
def wrapper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "wrapper.py"


def test_a_subject_behind_another_command_is_compared_like_any_other(wrapper: Path) -> None:
    with Supervisor(SOURCE, command=COMMAND) as near, behind(wrapper, 1 << 30) as far:
        comparison = Comparison(near, far)
        comparison.run(SCENARIOS[:4], lambda done, total: None)

    assert comparison.document().verdict == "EQUAL"


def test_a_connection_that_is_cut_in_an_answer_is_a_fault_and_the_verdict_unknown(wrapper: Path) -> None:
    with Supervisor(SOURCE, command=COMMAND) as near, behind(wrapper, 2000) as far:
        comparison = Comparison(near, far)
        comparison.run(SCENARIOS[:1], lambda done, total: None)
    document = comparison.document()

    assert document.verdict == "UNKNOWN"
    assert document.scenarios[0].reason.startswith("b: protocol: the other side closed the connection")
