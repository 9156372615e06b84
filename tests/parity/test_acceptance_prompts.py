"""Prompt files: which fields are read, and which lines are refused."""

import json
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.parity.acceptance_margins import margins_of
from harness.parity.acceptance_prompts import SHIPPED, read_prompts, template_text


def test_the_fields_of_known_sets_are_read(tmp_path: Path) -> None:
    lines = [
        {"question": "How many?", "answer": "#### 3"},  # GSM8K
        {"question_id": 81, "category": "writing", "turns": ["Write.", "Again."]},  # MT-bench
        {"task_id": "HumanEval/0", "prompt": "def f():"},
        {"input_ids": [1, 2, 3]},
    ]
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")

    assert read_prompts(path, None) == ("How many?", "Write.", "def f():", (1, 2, 3))
    assert read_prompts(path, 2) == ("How many?", "Write.")
    assert read_prompts(path, 2, skip=2) == ("def f():", (1, 2, 3))
    with pytest.raises(UsageError, match="has 4 prompts, and 2 behind the first 3 are asked for"):
        read_prompts(path, 2, skip=3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"question": "a"}\nhello', "line 2, is no prompt"),
        ('{"question": 3}', r"line 1, is no prompt: Expected `str \| null`"),
        ('{"text": "a"}', "line 1, has 0 of the fields question, turns, prompt and input_ids"),
        ('{"question": "a", "prompt": "b"}', "line 1, has 2 of the fields"),
        ('{"prompt": "  "}', "line 1, is empty"),
        ('{"input_ids": []}', "line 1, is empty"),
        ('{"input_ids": [1, -4]}', "line 1, has the token -4"),
        ("", "has 0 prompts, and 1 are asked for"),
        ("[" * 100_000, "line 1, is no prompt"),
    ],
)
def test_a_line_that_is_no_prompt_is_refused_with_its_place(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)

    with pytest.raises(UsageError, match=problem):
        read_prompts(path, None)


def test_fewer_prompts_than_asked_for_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n')

    with pytest.raises(UsageError, match="has 1 prompts, and 2 are asked for"):
        read_prompts(path, 2)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "model.safetensors"
    binary.write_bytes(b"\xff\xfe\x00")

    with pytest.raises(UsageError, match="cannot read the prompts nowhere"):
        read_prompts(Path("nowhere"), None)
    with pytest.raises(UsageError, match=r"cannot read the prompts .*codec can't decode"):
        read_prompts(binary, None)


def test_the_shipped_prompts_are_as_many_as_a_nightly_replay_is_planned_for_and_differ() -> None:
    prompts = read_prompts(SHIPPED, None)

    assert len(prompts) == len(set(prompts)) == margins_of("nightly")["replay"].prompts


def test_templates_are_named_or_given_and_think_where_they_can() -> None:
    assert template_text("plain", thinking=False) == "{prompt}"
    assert template_text("qwen3", thinking=True) in template_text("qwen3", thinking=False)
    assert template_text("Q: {prompt}\nA:", thinking=False) == "Q: {prompt}\nA:"
    with pytest.raises(UsageError, match=r"no template 'llama': name plain, qwen3, or a text with \{prompt\} in it"):
        template_text("llama", thinking=False)
    with pytest.raises(UsageError, match="'plain' has no thinking mode"):
        template_text("plain", thinking=True)
