"""The history of nightly runs."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from harness.commands.console import output
from harness.errors import Exit, UsageError
from harness.files import write_atomically
from harness.parity.history import append, read
from harness.report.document import SCHEMA, HistoryDocument, Result, encode, read_document
from harness.report.history import night, show_history


def history(file: Path, added: Sequence[Path], subject: str, json_file: Path | None) -> Exit:
    """Add one night with the results in `added`, if any are, and show what `file` holds then."""
    results = []
    for path in added:
        document = read_document(path)
        if not isinstance(document, Result):
            kind = document.__struct_config__.tag
            raise UsageError(f"{path} is a {kind}, and no result that a history could hold.")
        results.append(document)
    if results:
        append(file, night(subject, results, datetime.now(UTC)))
    nights = read(file)
    show_history(output(), nights)
    if json_file is not None:
        write_atomically(json_file, encode(HistoryDocument(SCHEMA, tuple(nights))))
    return Exit.PASSED
