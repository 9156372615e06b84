"""The bare subject, in a process of its own: the same scenarios, built and dropped; nothing read, sent or checked.

`python -m benchmarks.bare PATH REPEATS` prints the calls a second of each repeat as a JSON list.
"""

import json
import sys
import time

from harness.scenario.observation import Seen
from harness.scenario.sweep import sweep
from harness.subject.ascend import driver, reading
from harness.subject.frames import Observe


def main() -> None:
    path, repeats = sys.argv[1], int(sys.argv[2])
    info = driver.prepare(path, "emulated")
    subject = driver.Driver(info)
    scenarios = tuple(sweep(range(8, 9)))
    reading.seen = lambda *arguments: Seen()
    subject.observe(Observe(0, scenarios[:500]))
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        subject.observe(Observe(0, scenarios))
        rates.append(len(scenarios) / (time.perf_counter() - start))
    print(json.dumps(rates))


main()
