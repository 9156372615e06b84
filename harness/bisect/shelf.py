"""Answers that were given before, in the cache: what is asked again goes on where it ended, and is never stale."""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from harness.bisect.identity import harness_digest, sglang_digest, surroundings_digest
from harness.cache import cache_dir
from harness.files import safe_name, write_atomically
from harness.subject.source import Source

#: Answers of one release that are kept: each change of the harness makes new ones.
MOST_KEPT = 20

Answer = TypeVar("Answer")


class Shelf(Generic[Answer]):
    """Answers of one `kind` (a type that msgspec writes), in a folder of the cache.

    An answer is found again by its question, the sglang that was asked, the harness and the surroundings.
    """

    def __init__(self, folder: str, kind: type[Answer]) -> None:
        self.folder = folder
        self.kind = kind

    def recall(self, source: Source, question: bytes) -> Answer | None:
        """What `source` answered before; None where it was not asked, or where the answer cannot be read."""
        try:
            return msgspec.json.decode(self._path(source, question).read_bytes(), type=self.kind)
        except (OSError, msgspec.DecodeError):
            return None

    def put(self, source: Source, question: bytes, answer: Answer) -> None:
        """Keep an answer, and the newest ones of its release beside it."""
        path = self._path(source, question)
        write_atomically(path, msgspec.json.encode(answer), durable=False)
        with suppress(OSError):  # another scan may tidy up, too
            own = path.parent.glob(f"{safe_name(source.release)}-*.json")
            for file in sorted(own, key=lambda one: one.stat().st_mtime_ns)[:-MOST_KEPT]:
                file.unlink(missing_ok=True)

    def _path(self, source: Source, question: bytes) -> Path:
        known = "\n".join([harness_digest(), sglang_digest(source), surroundings_digest()])
        digest = sha256(f"{known}\n".encode() + question).hexdigest()
        return cache_dir() / self.folder / f"{safe_name(source.release)}-{digest[:32]}.json"
