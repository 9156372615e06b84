"""The cases as such: every emulated operator has one, and each names a rule that is there."""

import pytest

import harness.npu.finder  # noqa: F401 (registers what is emulated)
from harness.conformance.case import Case, Rule
from harness.conformance.cases import ALL, CASES, NOTHING_TO_COMPARE
from harness.npu.registry import emulated_names


def _covered(cases: tuple[Case, ...]) -> set[str]:
    return {operator for case in cases if case.expected is not None and not case.alone for operator in case.operators}


def test_every_emulated_operator_has_a_case_that_a_device_can_confirm() -> None:
    without = sorted(set(emulated_names()) - _covered(ALL) - NOTHING_TO_COMPARE.keys())

    assert not without, (
        f"{', '.join(without)}: emulated, but no case compares what it computes. Add one to CASES of a module in "
        "harness/conformance/: `accepted(name, Rule(file, words), Call(operator, arguments), expected)`. The operator "
        "is the registered name, `arguments` makes its arguments (half precision, pages of 128), `expected` computes "
        "{'output': …}, or the written arguments, in float64, and the words are those of the rule or Assumption in "
        "harness/npu that the case confirms. A new module goes into _ROOMS of harness/conformance/cases.py."
    )


def test_an_operator_without_a_case_would_be_seen() -> None:
    assert "npu._npu_paged_attention" in _covered(ALL)
    without = tuple(case for case in ALL if "npu._npu_paged_attention" not in case.operators)
    assert "npu._npu_paged_attention" not in _covered(without)


def test_what_has_nothing_to_compare_is_emulated() -> None:
    assert NOTHING_TO_COMPARE.keys() <= set(emulated_names())


@pytest.mark.parametrize("rule", sorted({case.rule for case in ALL}), ids=lambda rule: rule.words[:40])
def test_the_rule_of_a_case_is_in_the_emulation(rule: Rule) -> None:
    place = rule.place()

    assert place.startswith(f"harness/npu/{rule.file}:")
    assert rule.words in place


def test_words_that_are_gone_are_an_error_that_says_so() -> None:
    with pytest.raises(LookupError, match=r"attention\.py no longer says 'no such words'"):
        Rule("attention.py", "no such words").place()


def test_what_costs_the_device_comes_last() -> None:
    alone = [case.alone for case in CASES.values()]

    assert alone == sorted(alone)
    assert any(alone)


def test_every_name_is_one_case() -> None:
    assert len(CASES) == len(ALL)
