"""sglang's engine on the emulated NPU beside transformers: `python -m tests.engine.compare [--graphs] RELEASE...`.

Prints, for each release, whether the engine's tokens are those of transformers, where they first differ, and how many
tokens a step accepted; or how the engine ended.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.engine import entry_point
from tests.engine.prompts import NEW_TOKENS

_PATIENCE = 600
#: The last line of a traceback.
_ERROR = re.compile(r"[\w.]+(Error|Fault): ")


class Answers(NamedTuple):
    """The tokens after each prompt, and the steps that each took, or None without speculation."""

    tokens: list[list[int]]
    steps: list[int | None]

    @property
    def accepted(self) -> float:
        """Tokens per step."""
        return NEW_TOKENS * len(self.tokens) / sum(step or NEW_TOKENS for step in self.steps)


class EngineError(Exception):
    """The engine did not answer; the message is how it ended."""


def write_pair(folder: Path) -> None:
    """Save the models in `folder`."""
    _python(["-m", "tests.engine.tiny_pair", str(folder)], _environment())


def expected(pair: Path) -> list[list[int]]:
    """The tokens of transformers, in a process without the emulation."""
    return read_answers(_python(["-m", "tests.engine.reference", str(pair)], _environment())).tokens


def generated(spec: str, pair: Path, declared: Path, *options: str) -> Answers:
    """The answers of the engine of the sglang `spec`; `declared` is an empty folder. Raises `EngineError`."""
    generate = [sys.executable, "-m", "tests.engine.generate", str(pair), *options]
    environment = _environment() | {"PYTHONPATH": entry_point.declare(declared)}
    return read_answers(_python(["-m", "harness", "emulate", "--sglang", spec, *generate], environment))


def _environment() -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if name not in ("HARNESS_NPU_EMULATE", "PYTHONPATH")}
    return mine | {"OMP_NUM_THREADS": "1"}


def _python(arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=environment,
        cwd=entry_point.ROOT,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_PATIENCE,
    )


def read_answers(done: subprocess.CompletedProcess[str]) -> Answers:
    """What the process printed. Raises `EngineError`."""
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"tokens"')]
    if not lines:
        errors = [line for line in done.stderr.splitlines() if _ERROR.match(line)]
        raise EngineError(errors[-1] if errors else f"status {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(lines[-1])
    return Answers(answer["tokens"], answer.get("steps", []))


def verdict(answers: Answers, right: list[list[int]]) -> str:
    """Whether the answers are right, or the first token that is not."""
    for prompt, (tokens, wanted) in enumerate(zip(answers.tokens, right, strict=True)):
        if tokens != wanted:
            place = next(i for i in range(len(wanted)) if tokens[i : i + 1] != wanted[i : i + 1])
            return f"WRONG from token {place} of prompt {prompt}, {answers.accepted:.2f} tokens a step"
    return f"as transformers, {answers.accepted:.2f} tokens a step"


def main() -> None:
    """Compare the releases of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="+", metavar="RELEASE")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--algorithm", default="DFLASH")
    given = parser.parse_args()
    options = ["--algorithm", given.algorithm, *(["--graphs"] if given.graphs else [])]
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair"
        write_pair(pair)
        right = expected(pair)
        for release in given.releases:
            try:
                found = verdict(generated(release, pair, Path(folder) / release, *options), right)
            except EngineError as error:
                found = f"did not answer: {error}"
            print(f"{release} {given.algorithm} {'graphs' if given.graphs else 'eager'}: {found}", flush=True)


if __name__ == "__main__":
    main()
