"""Two runs side by side: the ladder, what is refused, and the document."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from harness.errors import CannotJudge, UsageError
from harness.parity.acceptance_comparison import compare
from harness.parity.acceptance_run import Ended, Reply, Run
from harness.parity.acceptance_verdict import Verdict
from harness.report.document import encode
from tests.parity.made_runs import BLOCK, HEADER, HISTOGRAM, SETTING, alike, records, replayed, reply, run

REFERENCE = run(records(alike()), name="ref.jsonl")


def _noisy(seed: int, count: int = SETTING.count) -> list[Reply]:
    """Answers whose counts scatter."""
    rng = np.random.default_rng(seed)
    return [reply(number, rng.multinomial(10, np.array(HISTOGRAM) / 10).tolist()) for number in range(count)]


def test_the_same_twice_is_equivalent() -> None:
    found = compare(REFERENCE, run(records(alike())))

    assert found.verdict is Verdict.EQUIVALENT
    assert [(rung.design, rung.prompts, rung.verdict) for rung in found.rungs] == [("free", 24, Verdict.EQUIVALENT)]
    assert found.left_out == ("replay: ref.jsonl replayed no steps",)


@pytest.mark.parametrize(
    ("histogram", "expected"), [((4, 2, 2, 2), Verdict.REGRESSED), ((0, 0, 0, 10), Verdict.IMPROVED)]
)
def test_less_regresses_and_more_is_looked_at(histogram: tuple[int, ...], expected: Verdict) -> None:
    assert compare(REFERENCE, run(records(alike(histogram)))).verdict is expected


def test_the_same_acceptance_with_another_output_is_not_equivalent() -> None:
    found = compare(REFERENCE, run(records([reply(0, tokens=[9] * 8), *alike()[1:]])))

    assert found.rungs[0].verdict is Verdict.EQUIVALENT
    assert found.verdict is Verdict.NOT_LOSSLESS


def test_too_little_to_say_is_inconclusive_and_says_how_much_would_decide() -> None:
    found = compare(run(records(_noisy(1))), run(records(_noisy(2))))
    (rung,) = found.rungs

    assert found.verdict is Verdict.INCONCLUSIVE
    assert rung.decide_if_same is not None and 100 < rung.decide_if_same < 1000


def test_replayed_steps_are_a_rung_of_their_own() -> None:
    answers = alike()
    reference = replayed(answers, correct=3)
    found = compare(reference, replayed(answers, correct=2, base=reference.digest))

    assert {rung.design: rung.verdict for rung in found.rungs} == {
        "replay": Verdict.REGRESSED,
        "free": Verdict.EQUIVALENT,
    }
    assert (found.rungs[0].reference.length, found.rungs[0].candidate.length) == (4, 3)
    assert found.verdict is Verdict.REGRESSED


def test_steps_after_other_prefixes_are_refused() -> None:
    answers = alike()

    with pytest.raises(UsageError, match=r"replayed other prefixes: run the second with --base run\.jsonl"):
        compare(replayed(answers, 3), replayed(answers, 3, base="another"))
    with pytest.raises(CannotJudge, match=r"replayed 48 steps and run\.jsonl 24, not the same ones"):
        compare(replayed(answers, 3), replayed(answers, 3, stride=8))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("template", "Q: {prompt}"),
        ("thinking", True),
        ("concurrency", 32),
        ("new_tokens", 9),
        ("prompts", "other"),
        ("draft_tokens", 8),
        ("algorithm", "EAGLE"),
    ],
)
def test_runs_with_another_setting_are_refused_with_both_values(name: str, value: object) -> None:
    other = run(records(alike()), replace(HEADER, setting=replace(SETTING, **{name: value})), "cand.jsonl")

    with pytest.raises(
        UsageError, match="ref.jsonl and cand.jsonl cannot be compared: they differ in " + name
    ) as refused:
        compare(REFERENCE, other)
    assert repr(value) in str(refused.value)


def test_a_run_that_is_not_whole_is_not_judged() -> None:
    half = run([*records(alike()[:12]), Ended("nobody answers")], name="half.jsonl")

    with pytest.raises(CannotJudge, match=r"half.jsonl has answers to 12 of 24 prompts \(nobody answers\)"):
        compare(REFERENCE, half)


def test_a_run_without_any_verify_is_not_judged() -> None:
    with pytest.raises(CannotJudge, match="counts no verify"):
        compare(REFERENCE, run([reply(number, [0] * BLOCK) for number in range(24)]))


def test_prompts_that_were_answered_without_a_verify_are_left_out_of_the_pairs() -> None:
    found = compare(REFERENCE, run(records([reply(0, [0] * BLOCK), *alike()[1:]])))

    assert found.rungs[0].prompts == 23


def test_what_two_runs_of_one_system_differ_by_widens_the_margin() -> None:
    pair = (run(records(_noisy(1))), run(records(_noisy(2))))
    plain, widened = compare(*pair), compare(*pair, aa=pair)

    assert plain.rungs[0].margin == 0.02 < widened.rungs[0].margin
    assert widened.rungs[0].margin_source.startswith("1.5 times what two runs of one system differ by")
    assert widened.verdict is Verdict.EQUIVALENT


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(UsageError, match="there are no margins 'weekly': there are nightly, pr"):
        compare(REFERENCE, REFERENCE, "weekly")


def test_the_document_has_what_a_report_draws() -> None:
    document = json.loads(encode(compare(REFERENCE, run(records(_noisy(3))))))
    (rung,) = document["rungs"]

    assert document["schema"] == 1
    assert document["verdict"] == rung["verdict"] == "INCONCLUSIVE"
    assert len(rung["scatter"]) == 24 and rung["scatter"][0][0] == 0
    assert rung["reference"]["positions"][0]["hazard"] == 0.8
    assert rung["power"][0].keys() == {"drop", "prompts", "equivalent", "regressed"}


def test_a_position_that_nothing_reached_has_no_hazard() -> None:
    only_first: Run = run(records(alike((5, 5, 0, 0))))
    positions = compare(only_first, only_first).rungs[0].candidate.positions

    assert (positions[1].hazard, positions[2].hazard, positions[2].low) == (0.0, None, None)
