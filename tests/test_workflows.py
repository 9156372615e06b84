"""The workflows in `docs/ci/`: what they type is what the command line takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from harness.cli import app

WORKFLOWS = sorted((Path(__file__).parent.parent / "docs" / "ci").glob("*.yml"))
GROUP = typer.main.get_command(app)


def typed(workflow: str) -> list[list[str]]:
    """The words of each `harness` command, up to what is the shell's."""
    found = re.findall(r"(?:^|&& |run: )\s*harness ([^\n|&]*)", workflow, flags=re.MULTILINE)
    return [shlex.split(words) for words in found]


def parse(words: list[str]) -> None:
    """Raise click's UsageError where the command line does not take `words`."""
    GROUP.commands[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_command_of_a_workflow_can_be_typed(path: Path) -> None:
    commands = typed(path.read_text())
    assert commands
    for words in commands:
        parse(words)


def test_an_option_that_is_no_more_is_found() -> None:
    with pytest.raises(Exception, match="No such option: --gone"):
        parse(typed("      - run: harness check --gone 1\n")[0])
