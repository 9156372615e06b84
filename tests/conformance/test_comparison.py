"""What is said of an answer: nothing where it is right, and else what is wrong and which rule says so."""

import sys

import numpy as np
import pytest
import torch

from harness.conformance import answers
from harness.conformance.case import Answer, Case, Rule
from harness.conformance.cases import CASES
from harness.conformance.comparison import why_different, why_not_right

RULE = Rule("query_layout.py", "in TND, D must be one of {_PACKED_DIMENSIONS}")
ATTENTION = Case("attention", ("npu.one",), RULE, lambda device: {}, lambda: {"output": np.array([0.5, -2.0])})
REFUSAL = ATTENTION._replace(name="refusal", expected=None)
REFUSED = Answer("refused", text="RuntimeError: one: query is 48: in TND, D must be one of (64, 128)")


def returned(*numbers: float, dtype: torch.dtype = torch.float16) -> Answer:
    return Answer("returned", {"output": torch.tensor(numbers, dtype=dtype)})


@pytest.mark.parametrize(
    ("case", "answer"),
    [(ATTENTION, returned(0.5, -2.0)), (ATTENTION, returned(0.501, -2.004)), (REFUSAL, REFUSED)],
)
def test_what_is_right_within_the_noise_of_its_type_is_no_finding(case: Case, answer: Answer) -> None:
    assert why_not_right(case, answer) == ""
    assert why_different(case, answer, answer) == ""


@pytest.mark.parametrize(
    ("case", "answer", "words"),
    [
        (ATTENTION, returned(0.5, -1.98), "output[1] is -1.98047, off by 0.0195"),
        (ATTENTION, returned(0.5, float("nan")), "output[1] is nan"),
        (ATTENTION, returned(0.5, -2.004, dtype=torch.float32), "output[1] is -2.004"),
        (ATTENTION, returned(0.5), "output is of shape [1] instead of the [2]"),
        (ATTENTION, Answer("returned", {"other": torch.zeros(2)}), "the values are ['other'] instead of ['output']"),
        (ATTENTION, REFUSED, "should compute this, but refuses it (RuntimeError: one: query is 48"),
        (ATTENTION, Answer("not emulated"), "should compute this, but does not know it"),
        (REFUSAL, returned(0.5, -2.0), "should refuse this by its rule, but computes it"),
        (REFUSAL, REFUSED._replace(text="one: query is 48: it is odd"), "should refuse this by its rule, but refuses"),
    ],
)
def test_an_emulation_that_is_wrong_is_told_with_the_rule(case: Case, answer: Answer, words: str) -> None:
    said = why_not_right(case, answer)

    assert said.startswith(f"{case.name}: ")
    assert words in said
    assert "harness/npu/query_layout.py:" in said


@pytest.mark.parametrize(
    ("real", "emulated", "words"),
    [
        (returned(0.5, -1.98), returned(0.5, -2.0), "output[1] is -1.98047"),
        (REFUSED, returned(0.5, -2.0), "the device refuses it"),
        (returned(0.5, -2.0), REFUSED, "the device computes it, but the emulation refuses it"),
        (Answer("no answer", text="it did not answer"), REFUSED, "the device gives no answer (it did not answer)"),
        (Answer("returned", {"the call": "no error"}), Answer("returned", {"the call": "507015"}), "'the call' is 'no"),
    ],
)
def test_a_device_that_differs_contradicts_the_rule(real: Answer, emulated: Answer, words: str) -> None:
    said = why_different(ATTENTION, real, emulated)

    assert words in said
    assert "\nIt contradicts harness/npu/query_layout.py:" in said
    assert "(test_comparison.py, ('npu.one',))" in said


def test_an_infinity_is_like_itself_and_like_no_number() -> None:
    infinite = returned(float("-inf"), 1.0)

    assert why_different(ATTENTION, infinite, infinite) == ""
    assert "output[0] is 1, off by inf" in why_different(ATTENTION, returned(1.0, 1.0), infinite)


def test_a_device_that_hangs_gives_no_answer_and_the_next_case_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "START_LIMIT", 0.0)
    monkeypatch.setattr(answers, "CASE_LIMIT", 0.2)
    monkeypatch.setitem(answers.COMMANDS, "npu", (sys.executable, "-c", "import time; time.sleep(3600)"))
    names = list(CASES)[:2]

    assert [answer.outcome for answer in answers.ask("npu", names).values()] == ["no answer"] * 2
    assert answers.ask("npu", names[:1])[names[0]].text == "it did not answer within 0.2 s"
