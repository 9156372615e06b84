"""Where commands write what they found."""

from rich.console import Console

from harness.errors import ReaderGone

#: Columns of tables where the output is no terminal, and nobody knows how wide it will be read.
PLAIN_WIDTH = 160


class _Output(Console):
    """Stdout. A reader that went away is an error of its own: Rich would end with status 1, which means findings."""

    def on_broken_pipe(self) -> None:
        raise ReaderGone


def output() -> Console:
    """Fingerprints have colons, and `:end:` is no emoji."""
    console = _Output(emoji=False)
    return console if console.is_terminal else _Output(width=PLAIN_WIDTH, emoji=False)
