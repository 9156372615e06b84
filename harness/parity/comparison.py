"""Comparing what two sides saw: integers exactly, numbers by each side's error against float64."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from harness.checks.attention import floor
from harness.checks.noise import FACTOR, floors
from harness.parity.document import (
    SCHEMA,
    WORST_FIRST,
    ComparisonDocument,
    Divergence,
    ScenarioComparison,
    Verdict,
)
from harness.parity.errors import ErrorSum, ratio
from harness.parity.sides import Side
from harness.reference.attention import outputs
from harness.reference.metadata import Row, rows
from harness.scenario import MetadataScenario, Request
from harness.scenario.metadata import Target
from harness.scenario.observation import Observation, Seen
from harness.subject.frames import SubjectInfo

#: Scenarios that are asked at once.
BATCH = 8
#: Told how many scenarios are done, and of how many.
Progress = Callable[[int, int], None]
#: A field that every subject of attention can be asked for: how many positions each request attends to.
KV_LENGTHS = "kv_lengths"
#: Where an Ascend subject tells it: what a graph's operators are handed, else what the metadata says on the host.
TOLD = ("host_lengths", "seq_lens_cpu_int")


class _Judged(NamedTuple):
    verdict: Verdict
    reason: str = ""
    largest: tuple[float, float] | None = None
    divergence: Divergence | None = None


class Comparison:
    """Two sides, and what has been seen of them so far; it keeps a line for each scenario, and no arrays."""

    def __init__(self, a: Side, b: Side) -> None:
        self.sides = (a, b)
        self.infos = (a.info, b.info)
        self.sums = (ErrorSum(), ErrorSum())
        self.scenarios: list[ScenarioComparison] = []
        self.first: Divergence | None = None

    def run(self, scenarios: Sequence[MetadataScenario], progress: Progress) -> None:
        """Ask both sides for every scenario, and compare the answers."""
        for start in range(0, len(scenarios), BATCH):
            progress(start, len(scenarios))
            batch = scenarios[start : start + BATCH]
            answers = [side.observe(batch) for side in self.sides]
            for scenario, a, b in zip(batch, *answers, strict=True):
                self.compare(scenario, a, b)
        progress(len(scenarios), len(scenarios))

    def compare(self, scenario: MetadataScenario, a: Observation, b: Observation) -> None:
        """Compare two answers to the next scenario."""
        judged = self._judge(scenario, a, b)
        if self.first is None:
            self.first = judged.divergence
        longest = max((row.kv_length for batch in scenario.rounds for row in rows(scenario, batch)), default=0)
        number = len(self.scenarios)
        self.scenarios.append(
            ScenarioComparison(number, path_of(scenario), longest, judged.verdict, judged.reason, judged.largest)
        )

    def only_one(self, scenario: MetadataScenario, side: str) -> None:
        """Note a scenario that only one side was asked."""
        self.scenarios.append(
            ScenarioComparison(len(self.scenarios), path_of(scenario), 0, "UNKNOWN", f"only {side} has it")
        )

    def document(self) -> ComparisonDocument:
        """All that was compared; nothing at all is UNKNOWN."""
        counts: dict[str, int] = {name: sum(one.verdict == name for one in self.scenarios) for name in WORST_FIRST}
        verdict: Verdict = next((name for name in WORST_FIRST if counts[name]), "UNKNOWN")
        errors = None
        if all(total.values for total in self.sums):
            errors = (
                self.sums[0].errors(_bound("mha", self.infos[0])),
                self.sums[1].errors(_bound("mha", self.infos[1])),
            )
        return ComparisonDocument(
            schema=SCHEMA,
            a=self.infos[0],
            b=self.infos[1],
            verdict=verdict,
            counts=counts,
            errors=errors,
            ratio=ratio(*errors) if errors else {},
            first=self.first,
            scenarios=tuple(self.scenarios),
        )

    def _judge(self, scenario: MetadataScenario, a: Observation, b: Observation) -> _Judged:
        for name, observation in (("a", a), ("b", b)):
            if observation.fault is not None:
                return _Judged("UNKNOWN", f"{name}: {observation.fault.cause}: {observation.fault.reason}")
        batches = [batch for batch in scenario.rounds for _ in range(scenario.builds)]
        for name, observation in (("a", a), ("b", b)):
            if len(observation.seen) != len(batches):
                return _Judged("UNKNOWN", f"{name} has {len(observation.seen)} rounds and not {len(batches)}")
        judged = [self._round(scenario, *one) for one in zip(range(len(batches)), batches, a.seen, b.seen, strict=True)]
        worst = min(judged, key=lambda one: WORST_FIRST.index(one.verdict))
        sizes = [one.largest for one in judged if one.largest is not None]
        largest = (max(size[0] for size in sizes), max(size[1] for size in sizes)) if sizes else None
        return worst._replace(largest=largest)

    def _round(self, scenario: MetadataScenario, step: int, batch: tuple[Request, ...], a: Seen, b: Seen) -> _Judged:
        place = _Place(scenario, len(self.scenarios), step, rows(scenario, batch))
        if a.error or b.error:
            if a.error and b.error:
                return _Judged("UNKNOWN", f"both raised, a: {a.error}; b: {b.error}")
            message = f"{'a' if a.error else 'b'} raised {a.error or b.error}"
            return _Judged("DIFFERENT", message, divergence=place.divergence("error", a.error, b.error, message))
        numbers = self._numbers(place, batch, a, b)
        divergence = _integers(place, a, b)
        if divergence is not None:
            return _Judged("DIFFERENT", divergence.message, numbers.largest, divergence)
        return numbers

    def _numbers(self, place: "_Place", batch: tuple[Request, ...], a: Seen, b: Seen) -> _Judged:
        """Each side's errors against float64; what is the same on both sides, bit for bit, is equal whatever it is."""
        if a.output is None or b.output is None:
            return _Judged("UNKNOWN", f"{'a' if a.output is None else 'b'} reported no output")
        if not batch:
            return _Judged("EQUAL")
        exact = outputs(place.scenario, batch)
        seen = (a.output.values, b.output.values)
        for name, values in zip("ab", seen, strict=True):
            if values.shape != exact.shape:
                return _Judged("UNKNOWN", f"the output of {name} has shape {values.shape} and not {exact.shape}")
        sizes = (self.sums[0].add(seen[0], exact), self.sums[1].add(seen[1], exact))
        if np.array_equal(seen[0].view(np.uint32), seen[1].view(np.uint32)):
            return _Judged("EQUAL", "", sizes)
        bounds = [_bound(place.scenario.target, info) for info in self.infos]
        for info, bound in zip(self.infos, bounds, strict=True):
            if bound is None:
                return _Judged("UNKNOWN", f"nobody has measured the noise of {info.noise}", sizes)
        apart = np.abs(seen[0].astype(np.float64) - seen[1])
        wrong = np.argwhere(~(apart <= (bounds[0] or 0) + (bounds[1] or 0)))
        if not len(wrong):
            return _Judged("WITHIN NOISE", "", sizes)
        row, head, _ = map(int, wrong[0])
        errors = [_error(values[row, head], exact[row, head]) for values in seen]
        divergence = place.of_output(row, head, exact.shape[1], errors)
        return _Judged("DIFFERENT", divergence.message, sizes, divergence)


class _Place(NamedTuple):
    """One round of one scenario, and the right rows of it."""

    scenario: MetadataScenario
    number: int
    step: int
    right: list[Row]

    def divergence(
        self, field: str, a: float | str, b: float | str, message: str, **where: int | float | str | None
    ) -> Divergence:
        """A divergence in this round."""
        draft_step = self.scenario.step if self.scenario.mode == "draft_decode" else None
        return Divergence(
            self.number,
            path_of(self.scenario),
            self.step,
            field,
            a,
            b,
            draft_step=draft_step,
            message=message,
            **where,  # type: ignore[arg-type]
        )

    def of_output(self, row: int, head: int, heads: int, errors: Sequence[float]) -> Divergence:
        """A divergence in an output: of which request, which of its queries, and in which layer."""
        ends = [right.query_end for right in self.right]
        request = next(index for index, end in enumerate(ends) if row < end)
        query = row - (ends[request - 1] if request else 0)
        layer = "window" if self.scenario.target == "swa" and head >= heads // 2 else "full"
        message = f"output of request {request}, row {query} of the {layer} layer: a is off by {errors[0]:.3g}, "
        message += f"b by {errors[1]:.3g} from float64"
        return self.divergence(
            "output", errors[0], errors[1], message, right=0.0, request=request, row=query, layer=layer
        )


def path_of(scenario: MetadataScenario) -> str:
    """The code path of a scenario in words."""
    target: str = scenario.target
    if (
        target == "mha"
        and scenario.attention is not None
        and scenario.attention.query_heads > scenario.attention.kv_heads
    ):
        target = "gqa"
    return f"{scenario.algorithm} {scenario.mode} {scenario.executor} {target}"


def _integers(place: _Place, a: Seen, b: Seen) -> Divergence | None:
    """The first field that both sides have and that is not the same, KV lengths first."""
    right = [row.kv_length for row in place.right]
    told = [_kv_lengths(seen, len(right)) for seen in (a, b)]
    if told[0] is not None and told[1] is not None:
        for request, (one, other) in enumerate(zip(*told, strict=True)):
            if one != other:
                message = (
                    f"{KV_LENGTHS}[{request}]: a attends to {one} positions, b to {other}; right is {right[request]}"
                )
                return place.divergence(KV_LENGTHS, one, other, message, right=float(right[request]), request=request)
    for name in sorted(set(a.fields) & set(b.fields)):
        one, other = a.fields[name].values, b.fields[name].values
        if one.shape != other.shape:
            return place.divergence(
                name, str(one.shape), str(other.shape), f"{name} has shape {one.shape} and {other.shape}"
            )
        differs = np.argwhere(one != other)
        if len(differs):
            index = tuple(map(int, differs[0]))
            message = f"{name}{list(index)}: {one[index]} and {other[index]}"
            return place.divergence(name, int(one[index]), int(other[index]), message, row=index[0])
    return None


def _kv_lengths(seen: Seen, requests: int) -> list[int] | None:
    """How many positions each request attends to, as far as the side tells; padded rows are left out."""
    field = next((seen.fields[name] for name in (KV_LENGTHS, *TOLD) if name in seen.fields), None)
    if field is None or len(field.shape) != 1 or field.shape[0] < requests:
        return None
    lengths: list[int] = field.values[:requests].tolist()
    return lengths


def _bound(target: Target, info: SubjectInfo) -> float | None:
    """The error up to which an output of a subject is noise, or None where nobody has measured it."""
    measured = floors().get(floor(target, info.noise))
    return None if measured is None else FACTOR * measured.largest_error


def _error(values: np.ndarray, exact: np.ndarray) -> float:
    error = float(np.abs(values - exact).max())
    return error if error == error else float("inf")
