"""An sglang server that the harness starts and ends."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import httpx

from harness.errors import CannotJudge, UsageError
from harness.subject.emulation import environment
from harness.subject.source import Source

#: Seconds until a server has to serve; a large model takes minutes to load.
START_LIMIT = 1800
_HOST = "127.0.0.1"


class Launched(NamedTuple):
    """A server that serves: its address, and the process group of all that it has started."""

    url: str
    group: int


@contextmanager
def launched(source: Source, arguments: str, device: str, note: Callable[[str], None]) -> Iterator[Launched]:
    """Start `python -m sglang.launch_server` with `arguments`, and give it once it serves.

    It and all that it has started end with the block. Raises UsageError for arguments that are no words, and
    CannotJudge, with the last words of the server, where it ends before it serves.
    """
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise UsageError(f"--engine {arguments!r} are no arguments: {error}.") from None
    port = _free_port()
    command = [sys.executable, "-m", "sglang.launch_server", "--device", "npu", *words]
    with tempfile.TemporaryFile() as said:
        note(f"sglang {source.release}: starting a server")
        process = subprocess.Popen(
            [*command, "--host", _HOST, "--port", str(port)],
            env=environment(source, emulated=device == "emulated"),
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            url = f"http://{_HOST}:{port}"
            deadline = time.monotonic() + START_LIMIT
            while not _serves(url):
                if process.poll() is not None:
                    said.seek(0)
                    raise CannotJudge(
                        f"the server of sglang {source.release} ended before it served: {_last(said.read())}"
                    )
                if time.monotonic() > deadline:
                    raise CannotJudge(f"the server of sglang {source.release} does not serve after {START_LIMIT} s.")
                time.sleep(0.2)
            yield Launched(url, process.pid)
        finally:
            _end(process)


def _serves(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=20).is_success
    except httpx.RequestError:
        return False


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind((_HOST, 0))
        return int(listening.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server's process group: its scheduler and detokenizer do not always end with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last(said: bytes) -> str:
    lines = [line.strip() for line in said.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing."
