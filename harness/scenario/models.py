"""The models that sessions run: folders with a target, and a draft by the name of each algorithm that has one."""

from pathlib import Path

import harness
from harness.scenario.metadata import Target

#: Beside the package in a clone.
FIXTURES = Path(harness.__file__).parent.parent / "fixtures"
MODELS: dict[Target, Path] = {"mha": FIXTURES / "tiny_pair"}
