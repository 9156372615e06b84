"""The prompts of an acceptance run: of a JSONL file that the user has, or those that ship; the template around each."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from harness.errors import UsageError

SHIPPED = Path(__file__).with_name("acceptance_prompts.jsonl")
_TEMPLATES = Path(__file__).with_name("acceptance_templates.json")


class Template(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The text around a prompt, for models that answer at once and for those that think first, and where it is from."""

    direct: str
    source: str
    thinking: str | None = None


class _Line(msgspec.Struct, frozen=True):
    """A line of a prompt file, in the fields of GSM8K (`question`), MT-bench (`turns`, of which the first is asked),
    HumanEval (`prompt`), or as tokens; what else it has is not looked at."""

    question: str | None = None
    turns: tuple[str, ...] | None = None
    prompt: str | None = None
    input_ids: tuple[int, ...] | None = None


Prompt = str | tuple[int, ...]


def read_prompts(path: Path, count: int | None, skip: int = 0) -> tuple[Prompt, ...]:
    """The first `count` prompts of a file behind those to `skip`, or all: texts, or tokens.

    Raises UsageError, with the line, for a file that is missing, empty, too short, or holds something else.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read the prompts {path}: {getattr(error, 'strerror', None) or error}.") from error
    prompts = tuple(_prompt(path, place, line) for place, line in enumerate(lines, 1) if line.strip())
    asked = prompts[skip:][:count]
    if len(asked) < (count or 1):
        behind = f" behind the first {skip}" if skip else ""
        raise UsageError(f"{path} has {len(prompts)} prompts, and {count or 1}{behind} are asked for.")
    return asked


def _prompt(path: Path, place: int, line: str) -> Prompt:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"{path}, line {place}, is no prompt: {error}.") from error
    first = read.turns[0] if read.turns else None
    given = [one for one in (read.question, first, read.prompt, read.input_ids) if one is not None]
    if len(given) != 1:
        raise UsageError(
            f"{path}, line {place}, has {len(given)} of the fields question, turns, prompt and input_ids: give it one."
        )
    prompt: Prompt = given[0]
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise UsageError(f"{path}, line {place}, is empty.")
    if isinstance(prompt, tuple) and min(prompt) < 0:
        raise UsageError(f"{path}, line {place}, has the token {min(prompt)}.")
    return prompt


@cache
def templates() -> Mapping[str, Template]:
    """The templates by name."""
    return msgspec.json.decode(_TEMPLATES.read_bytes(), type=dict[str, Template])


def template_text(name: str, thinking: bool) -> str:
    """The text of a template, with {prompt} in it; `name` is one that ships, or a text of the user's own.

    Raises UsageError for an unknown name, and for one that has no thinking mode.
    """
    if "{prompt}" in name:
        return name
    if name not in templates():
        raise UsageError(
            f"there is no template {name!r}: name {', '.join(templates())}, or a text with {{prompt}} in it."
        )
    found = templates()[name].thinking if thinking else templates()[name].direct
    if found is None:
        raise UsageError(f"the template {name!r} has no thinking mode.")
    return found


def prompts_digest(prompts: Sequence[Sequence[int]]) -> str:
    """What identifies prompts, as tokens and in order: a SHA-256."""
    return hashlib.sha256(msgspec.json.encode(prompts)).hexdigest()
