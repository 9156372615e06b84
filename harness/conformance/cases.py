"""All cases, those last that cost a process its device; and which emulated operators have one."""

from collections import Counter

from harness.conformance import (
    attention,
    faults,
    graphs,
    latent,
    layers,
    memory,
    products,
    refusals,
    samples,
    trees,
    writes,
)
from harness.conformance.case import Case

_ROOMS = (attention, latent, writes, layers, products, trees, samples, refusals, memory, graphs, faults)
ALL: tuple[Case, ...] = tuple(case for room in _ROOMS for case in room.CASES)
CASES: dict[str, Case] = {case.name: case for case in ALL}

if len(CASES) < len(ALL):
    raise ValueError(f"two cases have one name: {[name for name, n in Counter(c.name for c in ALL).items() if n > 1]}")

#: What is emulated and computes nothing that could differ.
NOTHING_TO_COMPARE = {
    "torchair.configs.compiler_config.CompilerConfig": "settings without effect",
    "torchair.get_npu_backend": "the name of a backend, under which code runs as it is",
}
