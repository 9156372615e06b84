"""A small operator of torch on the emulated device and on the host: `python -m benchmarks.device` prints the ratios.

In a process of its own, since installing the device changes a process for good.
"""

import json
import timeit
from collections.abc import Callable

from harness.npu import install

install()

import torch  # noqa: E402

CALLS, REPEATS = 2000, 7
OPERATORS: dict[str, Callable[[torch.Tensor], object]] = {
    "addition of 8 elements": lambda t: t + 1,
    "slice of 8 elements": lambda t: t[2:],
    "indexing of 8 elements": lambda t: t[[0, 3]],
}


def main() -> None:
    """The minimum of several repeats, device and host in turns."""
    torch.set_num_threads(1)
    host = torch.arange(8)
    ratios = {}
    for name, operator in OPERATORS.items():
        times: dict[str, list[float]] = {"npu": [], "cpu": []}
        for _ in range(REPEATS):
            for place, found in times.items():
                tensor = host.to(place)
                found.append(timeit.timeit(lambda: operator(tensor), number=CALLS) / CALLS)  # noqa: B023
        ratios[name] = (min(times["npu"]) / min(times["cpu"]), (min(times["npu"]) - min(times["cpu"])) * 1e6)
    print(json.dumps(ratios))


main()
