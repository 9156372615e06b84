"""The HTML report of documents that other commands have written."""

from collections.abc import Sequence
from pathlib import Path

from harness.errors import Exit, UsageError
from harness.files import write_atomically
from harness.report.document import read_document


def report(files: Sequence[Path], out: Path) -> Exit:
    """Write the report of the documents in `files` to `out`; the status says only whether it was written."""
    from harness.report.html import html  # plots take half a second to import

    if len(set(files)) < len(files):
        raise UsageError("a document is named twice.")
    documents = {str(file): read_document(file) for file in files}
    write_atomically(out, html(documents).encode())
    return Exit.PASSED
