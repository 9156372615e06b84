"""A case: what is done on a device, what must come of it, and the rule of the emulation that says so."""

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import torch

import harness
from harness.conformance.device import Device

#: Numbers, or words such as the kind of an error.
Value = torch.Tensor | str
Values = Mapping[str, Value]
Outcome = Literal["returned", "refused", "lost", "not emulated", "no answer"]

_FOLDER = Path(harness.__file__).parent / "npu"


class Rule(NamedTuple):
    """The line of `harness/npu/` that has these `words`: an assumption, a rule for arguments, or what is documented."""

    file: str
    words: str

    def place(self) -> str:
        """File, line and text; raises LookupError where the words are gone."""
        lines = (_FOLDER / self.file).read_text().splitlines()
        for number, line in enumerate(lines, start=1):
            if self.words in line:
                return f"harness/npu/{self.file}:{number}: {line.strip()}"
        raise LookupError(f"harness/npu/{self.file} no longer says {self.words!r}: name its new words in the case")

    def speaks_in(self, text: str) -> bool:
        """Whether an error of the emulation is the one that the words make."""
        parts = re.split(r"{[^{}]*}", self.words)
        return re.search(".+".join(map(re.escape, parts)), text) is not None


class Answer(NamedTuple):
    """What a device said: the values of a case that returned, or the text of an error."""

    outcome: Outcome
    values: Values = MappingProxyType({})
    text: str = ""


class Case(NamedTuple):
    """`run` is done on a device, and its values must be those of `expected`; where that is None, it must be refused.

    `operators` are names of the registry. Where it is `alone`, the case costs its process the device.
    """

    name: str
    operators: tuple[str, ...]
    rule: Rule
    run: Callable[[Device], Values]
    expected: Callable[[], dict[str, np.ndarray | str]] | None
    alone: bool = False

    @property
    def source(self) -> str:
        """Where the case itself is written."""
        return Path(inspect.getfile(self.run)).name
