"""Asking a device in processes of their own: one for many cases, until the device is lost, and one for each fault."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import torch

import harness
from harness.conformance.case import Answer
from harness.conformance.cases import CASES

Kind = Literal["emulated", "npu"]

#: How each kind of device is started; the kind, a folder for answers and the names of cases are added.
COMMANDS: dict[str, tuple[str, ...]] = {
    "emulated": (sys.executable, "-P", "-m", "harness.conformance"),
    "npu": (sys.executable, "-P", "-m", "harness.conformance"),
}
START_LIMIT = 180.0  #: seconds to import torch_npu on a slow machine
CASE_LIMIT = 30.0  #: seconds for one case, the compilation of its operators included
LAST_WORDS = 2000  #: characters of a process's stderr that are kept


def ask(kind: Kind, names: Sequence[str]) -> dict[str, Answer]:
    """The answer to each case of `names`."""
    answers: dict[str, Answer] = {}
    together = [name for name in names if not CASES[name].alone]
    while left := [name for name in together if name not in answers]:
        answers |= _one_process(kind, left)
    for name in names:
        if CASES[name].alone:
            answers |= _one_process(kind, [name])
    return answers


def _one_process(kind: Kind, names: Sequence[str]) -> dict[str, Answer]:
    """The answers of one process, which has at least one; what costs it its device comes last."""
    with TemporaryDirectory() as folder:
        command = [*COMMANDS[kind], kind, folder, *names]
        limit = START_LIMIT + CASE_LIMIT * len(names)
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=_environment(kind))
            how = f"its process ended with status {ended.returncode}: {ended.stderr[-LAST_WORDS:].strip()}"
        except subprocess.TimeoutExpired:
            how = f"it did not answer within {limit:g} s"
        answers = dict(_read(folder, names))
    if not answers or (len(answers) < len(names) and answers[names[len(answers) - 1]].outcome != "lost"):
        answers[names[len(answers)]] = Answer("no answer", text=how)
    return answers


def _environment(kind: Kind) -> dict[str, str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(harness.__file__).parent.parent)}
    if kind == "emulated":
        environment["HARNESS_NPU_EMULATE"] = "1"  # beside a real one, on purpose
    return environment


def _read(folder: str, names: Sequence[str]) -> Iterable[tuple[str, Answer]]:
    for number, name in enumerate(names):
        with contextlib.suppress(FileNotFoundError):
            yield name, Answer(*torch.load(path(folder, number), weights_only=True))


def path(folder: str, number: int) -> Path:
    """Where a process puts its answer to the case of that number."""
    return Path(folder, f"{number}.pt")
