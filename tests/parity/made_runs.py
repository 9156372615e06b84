"""Acceptance runs that are made up: no server, no model."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from harness.parity.acceptance_file import write
from harness.parity.acceptance_run import SCHEMA, Header, Record, Reply, Run, Scored, Setting, Step, System, assembled

BLOCK = 4
SETTING = Setting("digest", 24, "{prompt}", False, 8, 8, "DFLASH", BLOCK)
SYSTEM = System("http://there", "0.5.23", "emulated", "float32", 1, False, "target", "draft", 1)
HEADER = Header(SCHEMA, "2026-11-30", "0", SETTING, SYSTEM)
#: Four drafts accepted or not in ten verifies.
HISTOGRAM = (2, 1, 1, 6)
GAP = 2.5


def reply(number: int, histogram: Sequence[int] = HISTOGRAM, tokens: Sequence[int] = tuple(range(8))) -> Reply:
    """An answer with these counts."""
    verifies = sum(histogram)
    correct = sum(accepted * times for accepted, times in enumerate(histogram))
    return Reply(number, (number, 1, 2), tuple(tokens), verifies, correct, verifies * (BLOCK - 1), tuple(histogram))


def scored(answer: Reply, gaps: Mapping[int, float] | None = None) -> Scored:
    """A target that chooses what was answered, with small gaps at some places."""
    all_gaps = tuple((gaps or {}).get(place, GAP) for place in range(len(answer.tokens)))
    return Scored(answer.number, "own", answer.tokens, all_gaps)


def records(replies: Sequence[Reply], gaps: Mapping[int, float] | None = None) -> list[Record]:
    """Answers, each with the target along it."""
    return [*replies, *(scored(one, gaps) for one in replies)]


def alike(histogram: Sequence[int] = HISTOGRAM) -> list[Reply]:
    """24 answers with the same counts."""
    return [reply(number, histogram) for number in range(SETTING.count)]


def run(made: Sequence[Record], header: Header = HEADER, name: str = "run.jsonl") -> Run:
    """The run, without a file."""
    return assembled(Path(name), header, made)


def replayed(answers: Sequence[Reply], correct: int, base: str = "", stride: int = 4) -> Run:
    """A run in which every replayed step accepts so many drafts."""
    steps = [Step(one.number, start, correct) for one in answers for start in range(0, len(one.tokens), stride)]
    return run([*records(answers), *steps], replace(HEADER, base=base, stride=stride))


def written(folder: Path, made: Sequence[Record], header: Header = HEADER, name: str = "run.jsonl") -> Path:
    """The file of the run."""
    write(folder / name, header, made)
    return folder / name
